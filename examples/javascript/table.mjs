// The objects that exist, kept from the events of kubecdc whatever copies, late records, gaps and snapshots come.

const REMEMBER = 100_000; // ended objects, and ids of stream events: what a late copy is told by

export class Table {
  rows = new Map(); // by source and uid: the objects that exist
  gone = new Map(); // by source and uid: those that do not any more
  #reading = new Map(); // by source and scope: the snapshot being read, and the position of its start
  #heard = new Map(); // source and id of stream events
  #position = 0;

  // Takes the next event; returns what it changed: [{ what, row }].
  apply(event) {
    this.#position++;
    if (event.deadletterreason) return []; // Among the dead letters, and no part of the stream: a gap says so.
    return event.op ? this.#object(event) : this.#stream(event);
  }

  #object(event) {
    const { source, uid, op, namespace = "", name, data } = event;
    const group = event.apiversion.includes("/") ? "." + event.apiversion.split("/")[0] : "";
    const version = versionOf(event);
    const part = selectors(event.scope ?? "");
    const row = { source, uid, resource: event.resource + group, namespace, name, version, position: 0, object: data.after, part };

    const key = `${source} ${uid}`;
    const known = this.rows.get(key);
    const shown =
      op !== "r" || [...this.#reading.values()].some((s) => s.source === source && s.snapshot === data.snapshot);
    row.position = shown ? this.#position : (known?.position ?? 0);
    if (known && op === "r") known.position = row.position; // It exists, even where that is no news.

    if (known && op === "l" && part && known.part && part !== known.part) return []; // Another scope's already.
    const last = known ?? this.gone.get(key);
    if (last && version && version <= last.version) {
      // A copy, or late. But a snapshot may read again what had left the selection, as it was then, and another scope may have
      // it since.
      const again = (op === "r" && shown) || (op === "e" && part !== last.part);
      if (known || !again || version < last.version) return [];
    }
    if ("dl".includes(op)) {
      this.rows.delete(key);
      remember(this.gone, key, row);
    } else if ("cure".includes(op)) {
      this.rows.set(key, row);
      this.gone.delete(key);
    } else {
      return []; // A later version's.
    }
    return [{ what: event.type.split(".").at(-1), row }];
  }

  #stream({ source, id, type, scope, data }) {
    const kind = type.replace("dev.kubecdc.", "");
    if (!["snapshot.started", "snapshot.completed", "gap"].includes(kind) || this.#heard.has(`${source} ${id}`)) return [];
    remember(this.#heard, `${source} ${id}`, true);
    if (kind === "gap") return data.deadLetter ? this.#letter(source, data.deadLetter) : [];
    const key = `${source} ${scope}`;
    const reading = this.#reading.get(key);
    if (kind === "snapshot.started") {
      this.#reading.set(key, { source, snapshot: data.snapshot, position: this.#position });
    } else if (kind === "snapshot.completed" && reading?.snapshot === data.snapshot) {
      this.#reading.delete(key);
      return this.#sweep(source, scope, reading.position);
    }
    return [];
  }

  // The event of that id is among the dead letters: the object exists, unless the event is its deletion.
  #letter(source, id) {
    const [, uid, version] = id.split("/");
    const key = `${source} ${uid}`;
    const row = this.rows.get(key);
    if (row && version === "d") {
      this.rows.delete(key);
      remember(this.gone, key, row);
      return [{ what: "deleted", row }];
    }
    if (row) row.position = this.#position;
    return [];
  }

  // What was neither read nor changed since the snapshot started does not exist.
  #sweep(source, scope, started) {
    const swept = [...this.rows].filter(([, row]) => row.position < started && covers(source, scope, row));
    for (const [key, row] of swept) {
      this.rows.delete(key);
      remember(this.gone, key, row);
    }
    return swept.map(([, row]) => ({ what: "swept", row }));
  }
}

// The sequence, behind the number of restores of etcd that the id ends in: sequences begin again below after one.
function versionOf({ id, sequence }) {
  const history = /\/h([0-9]+)$/.exec(id)?.[1] ?? "0";
  return sequence ? `${history.padStart(10, "0")} ${sequence}` : "";
}

// Whether a scope ("pods", "pods/shop", "configmaps/*,!kube-*?labelSelector=a=b") covers a row.
function covers(source, scope, row) {
  const part = selectors(scope);
  const [resource, patterns] = scope.slice(0, scope.length - part.length).split("/");
  if (source !== row.source || resource !== row.resource || (part && row.part && part !== row.part)) return false;
  if (!patterns || !row.namespace) return true;
  const glob = (p) => new RegExp(`^${p.replace("!", "").replaceAll("*", ".*").replaceAll("?", ".")}$`);
  const matching = patterns.split(",").filter((p) => glob(p).test(row.namespace));
  return matching.length > 0 && !matching.some((p) => p.startsWith("!"));
}

// The selectors in the name of a scope: "?labelSelector=a=b", "?any=shop?labelSelector=a=b|team-*".
function selectors(scope) {
  return /\?(?:labelSelector|fieldSelector|any)=.*/.exec(scope)?.[0] ?? "";
}

function remember(known, key, value) {
  known.set(key, value);
  if (known.size > REMEMBER) known.delete(known.keys().next().value); // The oldest.
}
