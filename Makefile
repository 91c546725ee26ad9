# poll_tally: built with PGXS. PG_CONFIG chooses the PostgreSQL installation.
EXTENSION = poll_tally
EXTVERSION = 0.1.0

MODULE_big = poll_tally
OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c))
SOURCE_HEADERS = $(wildcard src/*.h)

DATA_built = sql/poll_tally--$(EXTVERSION).sql
DATA = $(wildcard sql/poll_tally--*--*.sql)

PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers $(WARNINGS)
# A planted bug, see src/plant.h.
ifdef POLL_TALLY_PLANT
PG_CPPFLAGS += -DPOLL_TALLY_PLANT=$(POLL_TALLY_PLANT)
endif
# Our own names win inside our library, whatever later minor releases of the
# server come to export.
SHLIB_LINK = -Wl,-Bsymbolic

EXTRA_CLEAN = sql/poll_tally--$(EXTVERSION).sql

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS): $(SOURCE_HEADERS)

sql/poll_tally--$(EXTVERSION).sql: sql/poll_tally.sql
	cp $< $@

.PHONY: demo test test-deep bench bench-quick bench-long legs coverage lint format dist

demo:
	scripts/demo

test:
	scripts/test

test-deep:
	scripts/test-deep

bench-quick:
	bench/run --quick

bench:
	bench/run --full --record

bench-long:
	bench/run --long --record

legs:
	scripts/legs

coverage:
	scripts/legs run coverage

lint:
	scripts/test lint

format:
	clang-format -i src/*.[ch] bench/*.c

# For the PostgreSQL Extension Network: what is committed, see .gitattributes.
DIST = $(EXTENSION)-$(EXTVERSION).zip

dist:
	git archive --format=zip --prefix=$(EXTENSION)-$(EXTVERSION)/ -o $(abspath $(DIST)) HEAD
