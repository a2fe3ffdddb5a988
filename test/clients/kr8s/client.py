"""Asks a Kubernetes API with kr8s, and prints what it answers (test/clients/doc.go)."""

import json
import sys

import kr8s
from kr8s.objects import ConfigMap, Deployment, Namespace

namespace = sys.argv[2]
api = kr8s.api()


def show(*words):
    print(*words, flush=True)


def name(o):
    return f"{o.metadata.name}@{o.metadata.resourceVersion}"


def names(items):
    return " ".join(name(o) for o in items)


def value(o):
    return o.raw.get("data", {}).get("v", "")


def read():
    show("version", api.version()["gitVersion"])
    show("list", names(api.get("configmaps", namespace=namespace)))
    show("labels", names(api.get("configmaps", namespace=namespace, label_selector={"app": "web"})))
    show("fields", names(api.get("cm", namespace=namespace, field_selector="metadata.name=b")))
    a = ConfigMap.get("a", namespace=namespace)  # a list with a field selector
    show("get", name(a), value(a), a.exists())
    web = Deployment.get("web", namespace=namespace)
    show("deployment", web.replicas, web.spec.template.spec.containers[0].image, web.metadata.creationTimestamp)
    for lamp in api.get("lamps.past.example.com", namespace=namespace):
        show("custom", name(lamp), json.dumps(lamp.raw["spec"]))
    table = list(api.get("configmaps", namespace=namespace, as_object=kr8s.objects.Table))[0]
    show("table", [row["cells"][:2] for row in table.rows])
    try:
        ConfigMap.get("none", namespace=namespace)
    except kr8s.NotFoundError as error:
        show("missing", error)
    show("resources", sorted(r["name"] for r in api.api_resources() if r["kind"] in ("ConfigMap", "Lamp", "Deployment", "Namespace")))
    show("namespace", Namespace.get(namespace).metadata.name)


def follow():
    found = []
    for what, o in api.watch("configmaps", namespace=namespace):
        found.append(o)
        show(what, name(o), value(o))
        if len(found) == 3:
            show("listed", names(found))
        if o.metadata.name == "last":
            return


def write():
    new = ConfigMap({"metadata": {"name": "new", "namespace": namespace}})
    a = ConfigMap.get("a", namespace=namespace)
    for what, call in [("create", new.create), ("patch", lambda: a.patch({"data": {"v": "9"}})), ("delete", a.delete)]:
        try:
            call()
            show(what, "was not refused")
        except kr8s.ServerError as error:
            show(what, error.response.status_code, error)


{"read": read, "watch": follow, "write": write}[sys.argv[1]]()
