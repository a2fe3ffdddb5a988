"""A table of the objects that exist, built from the events of kubecdc. Copies, late records, gaps and snapshots do not confuse it."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

MAX_KNOWN = 100_000  # deleted objects, and ids of stream events, that are kept to recognize late copies


@dataclass
class Row:
    resource: str  # "deployments.apps", "pods"
    namespace: str
    name: str
    version: str  # the highest one seen: history and sequence
    position: int  # of the last event that changed the object, or read it for a snapshot in progress
    object: dict | None
    part: str = ""  # selectors of the scope that sent its last event
    left: str = ""  # the version at which it had left, if a later snapshot has read it at a lower one


class Table:
    def __init__(self):
        self.rows = {}  # by (cluster, resource, uid): the objects that exist
        self.gone = {}  # by (cluster, resource, uid): the objects that no longer exist
        self.reading = {}  # by (cluster, scope): the snapshot being read, the position of its start, and its version
        self.changed = {}  # by (cluster, scope): the position of a gap after which known versions have other content
        self.seen = {}  # (cluster, id) of stream events
        self.position = 0

    def apply(self, event):
        """Applies the next event, and returns the changes of the table: [(what, row)]."""
        self.position += 1
        if event.get_extension("deadletterreason"):
            return []  # A dead letter is no part of the stream: a gap reports it.
        return self._object(event) if event.get_extension("op") else self._stream(event)

    def _object(self, event):
        op, data = event.get_extension("op"), event.get_data()
        resource = resource_of(event)
        version = version_of(event)
        part = selectors(event.get_extension("scope") or "")
        row = Row(resource, event.get_extension("namespace") or "", event.get_extension("name"), version, 0, data.get("after"), part)

        key = (cluster_of(event), resource, event.get_extension("uid"))
        known = self.rows.get(key)
        readings = [r for k, r in self.reading.items() if op == "r" and k[0] == key[0] and r[0] == data["snapshot"]]
        started = [at for _, at, _ in readings]
        # A change that is not above the version of a snapshot under way comes late, and does not show that its object exists.
        late = any(version and version <= v and covers(k, key, row) for k, (_, _, v) in self.reading.items())
        shown = bool(started) if op == "r" else not late
        # After a gap content-changed, the first read of a snapshot replaces the known version.
        other = any(known and known.position < at and self._may_differ(key, known, at) for at in started)
        row.position = self.position if shown else known.position if known else 0
        if known and op == "r":
            known.position = row.position  # The snapshot confirms that it exists.

        if known and op == "l" and part and known.part and part != known.part:
            return []  # Another scope has it, and its event came first.
        last = known or self.gone.get(key)
        if last and version and version <= last.version:
            # A copy, or a late record. But the same version is news if a snapshot reads an object that had left the selection,
            # or if the object has entered another scope.
            again = op == "r" and shown or op == "e" and part != last.part
            # So is a lower one, if its scope had ended, and is selected again.
            returns = not known and any(v > last.version for _, _, v in readings)
            if known and not other or not again or version < last.version and not returns:
                return []
            row.left = known.left if known else last.version
        if known and op == "l" and version and version <= known.left:
            return []  # A copy: a snapshot has read the object since.
        if op in ("d", "l"):
            self.rows.pop(key, None)
            keep(self.gone, key, row)
        elif op in ("c", "u", "r", "e"):
            self.rows[key] = row
            self.gone.pop(key, None)
        else:
            return []  # An op that a later version of the format adds.
        return [(event.get_type().rpartition(".")[2], row)]

    def _stream(self, event):
        kind, data, cluster = event.get_type().removeprefix("dev.kubecdc."), event.get_data(), cluster_of(event)
        if kind not in ("snapshot.started", "snapshot.completed", "gap") or (cluster, event.get_id()) in self.seen:
            return []
        keep(self.seen, (cluster, event.get_id()), None)
        scope = (cluster, event.get_extension("scope"))
        if kind == "gap":
            if data["reason"] == "content-changed":
                self.changed[scope] = self.position
            return self._letter((cluster, resource_of(event)), data["deadLetter"]) if "deadLetter" in data else []
        if kind == "snapshot.started" and data.get("continued"):
            return []  # Its first start was before the first record, or is known.
        if kind == "snapshot.started":
            self.reading[scope] = (data["snapshot"], self.position, version_of(event))
        elif kind == "snapshot.completed" and self.reading.get(scope, (None,))[0] == data["snapshot"]:
            started = self.reading.pop(scope)[1]
            if self.changed.get(scope, started) < started:
                del self.changed[scope]
            return self._sweep(scope, started)
        return []

    def _may_differ(self, key, row, started):
        """Reports whether a gap before a position says that the known version of a row has other content."""
        return any(at < started and covers(scope, key, row) for scope, at in self.changed.items())

    def _letter(self, resource, id):
        """Applies a gap for the dead letter with this id: the object exists, unless the event is its deletion."""
        _, uid, version = id.split("/")[:3]
        key = (*resource, uid)
        row = self.rows.get(key)
        if row and version == "d":
            keep(self.gone, key, self.rows.pop(key))
            return [("deleted", row)]
        if row:
            row.position = self.position
        return []

    def _sweep(self, scope, started):
        """Removes the objects that were neither read nor changed since the snapshot started: they no longer exist."""
        swept = [key for key, row in self.rows.items() if row.position < started and covers(scope, key, row)]
        for key in swept:
            keep(self.gone, key, self.rows.pop(key))
        return [("swept", self.gone[key]) for key in swept]


def cluster_of(event):
    """Returns the cluster of an event. One that is created again under the same name has the same source and another clusteruid."""
    return (event.get_source(), event.get_extension("clusteruid") or "")


def resource_of(event):
    """Returns the resource of an event: "deployments.apps", "pods"."""
    resource, group = event.get_extension("resource"), event.get_extension("apiversion").rpartition("/")[0]
    return f"{resource}.{group}" if group else resource


def version_of(event):
    """Returns the number of restores of etcd, with which the id ends, and the sequence. After a restore, sequences start over lower."""
    history = re.search(r"/h([0-9]+)$", event.get_id())
    sequence = event.get_extension("sequence")
    return f"{int(history[1]) if history else 0:010} {sequence}" if sequence else ""


def covers(scope, key, row):
    """Reports whether a scope ("pods", "pods/shop", "configmaps/*,!kube-*?labelSelector=a=b") covers a row."""
    part = selectors(scope[1])
    resource, _, patterns = scope[1].removesuffix(part).partition("/")
    if scope[0] != key[0] or resource != row.resource or (part and row.part and part != row.part):
        return False
    if not patterns or not row.namespace:
        return True
    matching = [p for p in patterns.split(",") if fnmatchcase(row.namespace, p.removeprefix("!"))]
    return bool(matching) and not any(p.startswith("!") for p in matching)


def selectors(scope):
    """Returns the selectors in the name of a scope: "?labelSelector=a=b", "?any=shop?labelSelector=a=b|team-*"."""
    found = re.search(r"\?(?:labelSelector|fieldSelector|any)=.*", scope)
    return found[0] if found else ""


def keep(known, key, value):
    known[key] = value
    if len(known) > MAX_KNOWN:
        del known[next(iter(known))]  # The oldest.
