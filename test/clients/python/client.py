"""Asks a Kubernetes API with the official client for Python, and prints what it answers (test/clients/doc.go)."""

import json
import sys

from kubernetes import client, config, dynamic, watch

config.load_kube_config()
core = client.CoreV1Api()
namespace = sys.argv[2]


def show(*words):
    print(*words, flush=True)


def name(o):
    return f"{o.metadata.name}@{o.metadata.resource_version}"


def names(items):
    return " ".join(name(o) for o in items)


def value(o):
    return (o.data or {}).get("v", "")


def read():
    show("version", client.VersionApi().get_code().git_version)
    show("list", names(core.list_namespaced_config_map(namespace).items))
    show("labels", names(core.list_namespaced_config_map(namespace, label_selector="app=web").items))
    show("fields", names(core.list_namespaced_config_map(namespace, field_selector="metadata.name=b").items))
    pages, token = [], None
    while True:
        page = core.list_namespaced_config_map(namespace, limit=1, _continue=token)
        pages += page.items
        token = page.metadata._continue
        if not token:
            break
    show("pages", names(pages))
    a = core.read_namespaced_config_map("a", namespace)
    show("get", name(a), value(a))
    web = client.AppsV1Api().read_namespaced_deployment("web", namespace)
    show("deployment", web.spec.replicas, web.spec.template.spec.containers[0].image, web.metadata.creation_timestamp)
    for lamp in client.CustomObjectsApi().list_namespaced_custom_object("past.example.com", "v1", namespace, "lamps")["items"]:
        show("custom", lamp["metadata"]["name"], json.dumps(lamp["spec"]))
    untyped = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="past.example.com/v1", kind="Lamp")
    show("dynamic", untyped.get(name="hall", namespace=namespace).spec.color)
    try:
        core.read_namespaced_config_map("none", namespace)
    except client.ApiException as error:
        show("missing", error.status, error.body.strip())
    show("namespace", core.read_namespace(namespace).metadata.name)


def follow():
    maps = core.list_namespaced_config_map(namespace)
    show("listed", names(maps.items))
    for e in watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=maps.metadata.resource_version):
        show(e["type"], name(e["object"]), value(e["object"]))
        if e["object"].metadata.name == "last":
            return


def write():
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="new"))
    for what, call, args in [
        ("create", core.create_namespaced_config_map, (namespace, body)),
        ("update", core.replace_namespaced_config_map, ("a", namespace, body)),
        ("patch", core.patch_namespaced_config_map, ("a", namespace, {})),
        ("delete", core.delete_namespaced_config_map, ("a", namespace)),
    ]:
        try:
            call(*args)
            show(what, "was not refused")
        except client.ApiException as error:
            show(what, error.status, error.body.strip())


{"read": read, "watch": follow, "write": write}[sys.argv[1]]()
