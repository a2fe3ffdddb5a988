// A table of the objects that exist, built from the events of kubecdc. Copies, late records, gaps and snapshots do not confuse it.

const MAX_KNOWN = 100_000; // deleted objects, and ids of stream events, that are kept to recognize late copies

export class Table {
  rows = new Map(); // by cluster, resource and uid: the objects that exist
  gone = new Map(); // by cluster, resource and uid: the objects that no longer exist
  #reading = new Map(); // by cluster and scope: the snapshot being read, the position of its start, and its version
  #changed = new Map(); // by cluster and scope: the last gap after which known versions have other content
  #seen = new Map(); // cluster and id of stream events
  #position = 0;

  // Applies the next event, and returns the changes of the table: [{ what, row }].
  apply(event) {
    this.#position++;
    if (event.deadletterreason) return []; // A dead letter is no part of the stream: a gap reports it.
    return event.op ? this.#object(event) : this.#stream(event);
  }

  #object(event) {
    const { source, clusteruid = "", uid, op, namespace = "", name, data } = event;
    const cluster = clusterOf(event);
    const resource = resourceOf(event);
    const version = versionOf(event);
    const part = selectors(event.scope ?? "");
    const row = { source, clusteruid, cluster, resource, uid, namespace, name, version, position: 0, object: data.after, part, left: "" };

    const key = `${cluster} ${resource} ${uid}`;
    const known = this.rows.get(key);
    const readings = [...this.#reading.values()].filter((s) => s.cluster === cluster && s.snapshot === data.snapshot);
    // A change that is not above the version of a snapshot under way comes late, and does not show that its object exists.
    const late = [...this.#reading.values()].some((s) => version && version <= s.version && covers(s.cluster, s.scope, row));
    const shown = op === "r" ? readings.length > 0 : !late;
    // After a gap content-changed, the first read of a snapshot replaces the known version.
    const other = op === "r" && readings.some((s) => known?.position < s.position && this.#mayDiffer(known, s.position));
    row.position = shown ? this.#position : (known?.position ?? 0);
    if (known && op === "r") known.position = row.position; // The snapshot confirms that it exists.

    if (known && op === "l" && part && known.part && part !== known.part) return []; // Another scope has it, and its event came first.
    const last = known ?? this.gone.get(key);
    if (last && version && version <= last.version) {
      // A copy, or a late record. But the same version is news if a snapshot reads an object that had left the selection,
      // or if the object has entered another scope.
      const again = (op === "r" && shown) || (op === "e" && part !== last.part);
      // So is a lower one, if its scope had ended, and is selected again.
      const returns = !known && op === "r" && readings.some((s) => s.version > last.version);
      if ((known && !other) || !again || (version < last.version && !returns)) return [];
      row.left = known ? known.left : last.version; // at which it had left
    }
    if (known && op === "l" && version && version <= known.left) return []; // A copy: a snapshot has read the object since.
    if ("dl".includes(op)) {
      this.rows.delete(key);
      keep(this.gone, key, row);
    } else if ("cure".includes(op)) {
      this.rows.set(key, row);
      this.gone.delete(key);
    } else {
      return []; // An op that a later version of the format adds.
    }
    return [{ what: event.type.split(".").at(-1), row }];
  }

  #stream(event) {
    const { id, type, scope, data } = event;
    const kind = type.replace("dev.kubecdc.", "");
    const cluster = clusterOf(event);
    if (!["snapshot.started", "snapshot.completed", "gap"].includes(kind) || this.#seen.has(`${cluster} ${id}`)) return [];
    keep(this.#seen, `${cluster} ${id}`, true);
    const key = `${cluster} ${scope}`;
    if (kind === "gap") {
      if (data.reason === "content-changed") this.#changed.set(key, { cluster, scope, position: this.#position });
      return data.deadLetter ? this.#letter(`${cluster} ${resourceOf(event)}`, data.deadLetter) : [];
    }
    const reading = this.#reading.get(key);
    if (kind === "snapshot.started" && data.continued) return []; // Its first start was before the first record, or is known.
    if (kind === "snapshot.started") {
      this.#reading.set(key, { cluster, scope, snapshot: data.snapshot, position: this.#position, version: versionOf(event) });
    } else if (kind === "snapshot.completed" && reading?.snapshot === data.snapshot) {
      this.#reading.delete(key);
      if (this.#changed.get(key)?.position < reading.position) this.#changed.delete(key);
      return this.#sweep(cluster, scope, reading.position);
    }
    return [];
  }

  // Reports whether a gap before a position says that the known version of a row has other content.
  #mayDiffer(row, started) {
    return [...this.#changed.values()].some((c) => c.position < started && covers(c.cluster, c.scope, row));
  }

  // Applies a gap for the dead letter with this id: the object exists, unless the event is its deletion.
  #letter(resource, id) {
    const [, uid, version] = id.split("/");
    const key = `${resource} ${uid}`;
    const row = this.rows.get(key);
    if (row && version === "d") {
      this.rows.delete(key);
      keep(this.gone, key, row);
      return [{ what: "deleted", row }];
    }
    if (row) row.position = this.#position;
    return [];
  }

  // Removes the objects that were neither read nor changed since the snapshot started: they no longer exist.
  #sweep(cluster, scope, started) {
    const swept = [...this.rows].filter(([, row]) => row.position < started && covers(cluster, scope, row));
    for (const [key, row] of swept) {
      this.rows.delete(key);
      keep(this.gone, key, row);
    }
    return swept.map(([, row]) => ({ what: "swept", row }));
  }
}

// Returns the cluster of an event. One that is created again under the same name has the same source and another clusteruid.
function clusterOf({ source, clusteruid = "" }) {
  return `${source} ${clusteruid}`;
}

// Returns the resource of an event: "deployments.apps", "pods".
function resourceOf({ resource, apiversion }) {
  return apiversion.includes("/") ? `${resource}.${apiversion.split("/")[0]}` : resource;
}

// Returns the number of restores of etcd, with which the id ends, and the sequence. After a restore, sequences start over lower.
function versionOf({ id, sequence }) {
  const history = /\/h([0-9]+)$/.exec(id)?.[1] ?? "0";
  return sequence ? `${history.padStart(10, "0")} ${sequence}` : "";
}

// Reports whether a scope ("pods", "pods/shop", "configmaps/*,!kube-*?labelSelector=a=b") covers a row.
function covers(cluster, scope, row) {
  const part = selectors(scope);
  const [resource, patterns] = scope.slice(0, scope.length - part.length).split("/");
  if (cluster !== row.cluster || resource !== row.resource || (part && row.part && part !== row.part)) return false;
  if (!patterns || !row.namespace) return true;
  const glob = (p) => new RegExp(`^${p.replace("!", "").replaceAll("*", ".*").replaceAll("?", ".")}$`);
  const matching = patterns.split(",").filter((p) => glob(p).test(row.namespace));
  return matching.length > 0 && !matching.some((p) => p.startsWith("!"));
}

// Returns the selectors in the name of a scope: "?labelSelector=a=b", "?any=shop?labelSelector=a=b|team-*".
function selectors(scope) {
  return /\?(?:labelSelector|fieldSelector|any)=.*/.exec(scope)?.[0] ?? "";
}

function keep(known, key, value) {
  known.set(key, value);
  if (known.size > MAX_KNOWN) known.delete(known.keys().next().value); // The oldest.
}
