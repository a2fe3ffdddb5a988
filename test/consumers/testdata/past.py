"""Asks a Kubernetes API with the official client, and prints what it answers. Arguments: kubeconfig, "moment" or "replay", directory for temporary files."""

import sys
import tempfile

from kubernetes import client, config, dynamic, watch

tempfile.tempdir = sys.argv[3]  # the client leaves files there
config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()


def show(*words):
    print(*words, flush=True)


def names(items):
    return " ".join(f"{o.metadata.namespace}/{o.metadata.name}" for o in items)


def refused(call, *args):
    try:
        call(*args)
    except client.ApiException as error:
        return error.status
    return "no error"


def moment():
    show("version", client.VersionApi().get_code().major)
    pods = core.list_pod_for_all_namespaces(watch=False)
    show("pods", pods.metadata.resource_version, names(pods.items))
    show("labels", names(core.list_namespaced_pod("shop", label_selector="app=web").items))
    show("fields", names(core.list_pod_for_all_namespaces(field_selector="metadata.name=web-1").items))
    page = core.list_namespaced_pod("shop", limit=1)
    rest = core.list_namespaced_pod("shop", limit=1, _continue=page.metadata._continue)
    show("pages", names(page.items + rest.items), page.metadata.remaining_item_count)
    pod = core.read_namespaced_pod("web-0", "shop")
    show("read", pod.metadata.resource_version, pod.spec.containers[0].image, pod.status.phase)
    show("missing", refused(core.read_namespaced_pod, "none", "shop"))
    show("delete", refused(core.delete_namespaced_pod, "web-0", "shop"))
    events = watch.Watch().stream(core.list_namespaced_pod, "shop", resource_version="0", timeout_seconds=1)
    show("watch", " ".join(f"{e['type']} {e['object'].metadata.name}" for e in events))
    untyped = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="Pod")
    show("dynamic", untyped.get(name="web-1", namespace="shop").metadata.resourceVersion)


def replay():
    pods = core.list_namespaced_pod("shop")
    show("pods", pods.metadata.resource_version, names(pods.items))
    for e in watch.Watch().stream(core.list_namespaced_pod, "shop", resource_version=pods.metadata.resource_version):
        pod = e["object"]
        show(e["type"], pod.metadata.name, pod.metadata.resource_version, pod.status.phase)


{"moment": moment, "replay": replay}[sys.argv[2]]()
