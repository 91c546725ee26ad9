// The client rule: another epoch replaces what we have, a lower revision is discarded, an equal one ignored, a higher
// one replaces, and more than one higher counts as a gap. Snapshots are complete, so a gap loses no votes.

export class Viewer {
  #heardAny = false;

  constructor(id) {
    this.gaps = 0;
    this.epoch = null;
    this.revision = 0;
    // As rendered by the server: epoch:revision, or "-:0" while the poll is hidden.
    const match = /^(.+):(\d+)$/.exec(id ?? '');
    if (match !== null && match[1] !== '-') [this.epoch, this.revision] = [match[1], Number(match[2])];
  }

  // Whether the snapshot is to be shown. What was published between the rendering of the page and the first snapshot
  // was not missed: nobody listened yet.
  apply(snapshot) {
    const first = !this.#heardAny;
    this.#heardAny = true;
    if (snapshot.epoch === this.epoch) {
      if (snapshot.revision <= this.revision) return false;
      if (snapshot.revision > this.revision + 1 && !first) this.gaps += 1;
    }
    [this.epoch, this.revision] = [snapshot.epoch, snapshot.revision];
    return true;
  }
}
