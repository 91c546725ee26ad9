-- Redis: the event under its id, compared when it is there, else stored and counted. KEYS: id, poll. ARGV: choice,
-- payload. It keeps no position and no time, its payload is compared as text, and what is not known as a poll or choice
-- is counted all the same.
local known = redis.call('GET', KEYS[1])
local content = KEYS[2] .. '\n' .. ARGV[1] .. '\n' .. ARGV[2]
if known then
	return known == content and 'duplicate' or 'conflict'
end
redis.call('SET', KEYS[1], content)
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
return 'accepted'
