import com.google.gson.reflect.TypeToken;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.AppsV1Api;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.apis.VersionApi;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.KubeConfig;
import io.kubernetes.client.util.Watch;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesApi;
import java.io.FileReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;

/** Asks a Kubernetes API with the official client for Java, and prints what it answers (test/clients/doc.go). */
public class Client {
  private static String namespace;
  private static ApiClient client;
  private static CoreV1Api core;

  static String names(List<V1ConfigMap> items) {
    return items.stream().map(o -> name(o.getMetadata())).collect(Collectors.joining(" "));
  }

  static String name(V1ObjectMeta meta) {
    return meta.getName() + "@" + meta.getResourceVersion();
  }

  static String value(V1ConfigMap map) {
    return map.getData() == null ? "" : map.getData().getOrDefault("v", "");
  }

  static void read() throws ApiException {
    System.out.println("version " + new VersionApi(client).getCode().execute().getGitVersion());
    System.out.println("list " + names(core.listNamespacedConfigMap(namespace).execute().getItems()));
    System.out.println("labels " + names(core.listNamespacedConfigMap(namespace).labelSelector("app=web").execute().getItems()));
    System.out.println("fields " + names(core.listNamespacedConfigMap(namespace).fieldSelector("metadata.name=b").execute().getItems()));
    List<V1ConfigMap> pages = new ArrayList<>();
    String next = null;
    do {
      V1ConfigMapList page = core.listNamespacedConfigMap(namespace).limit(1)._continue(next).execute();
      pages.addAll(page.getItems());
      next = page.getMetadata().getContinue();
    } while (next != null && !next.isEmpty());
    System.out.println("pages " + names(pages));
    V1ConfigMap a = core.readNamespacedConfigMap("a", namespace).execute();
    System.out.println("get " + name(a.getMetadata()) + " " + value(a));
    var web = new AppsV1Api(client).readNamespacedDeployment("web", namespace).execute();
    System.out.println("deployment " + web.getSpec().getReplicas() + " " + web.getSpec().getTemplate().getSpec().getContainers().get(0).getImage() + " "
        + web.getMetadata().getCreationTimestamp());
    for (var lamp : new DynamicKubernetesApi("past.example.com", "v1", "lamps", client).list(namespace).getObject().getItems()) {
      System.out.println("custom " + name(lamp.getMetadata()) + " " + lamp.getRaw().get("spec"));
    }
    try {
      core.readNamespacedConfigMap("none", namespace).execute();
    } catch (ApiException e) {
      System.out.println("missing " + e.getCode() + " " + e.getResponseBody().trim());
    }
    System.out.println("namespace " + core.readNamespace(namespace).execute().getMetadata().getName());
  }

  static void watch() throws Exception {
    V1ConfigMapList list = core.listNamespacedConfigMap(namespace).execute();
    System.out.println("listed " + names(list.getItems()));
    var call = core.listNamespacedConfigMap(namespace).watch(true).allowWatchBookmarks(true).resourceVersion(list.getMetadata().getResourceVersion())
        .buildCall(null);
    try (Watch<V1ConfigMap> watch = Watch.createWatch(client, call, new TypeToken<Watch.Response<V1ConfigMap>>() {}.getType())) {
      for (Watch.Response<V1ConfigMap> event : watch) {
        if (event.type.equals("BOOKMARK")) {
          continue;
        }
        System.out.println(event.type + " " + name(event.object.getMetadata()) + " " + value(event.object));
        if (event.object.getMetadata().getName().equals("last")) {
          break;
        }
      }
    }
    // An informer begins with the end.
    SharedInformerFactory factory = new SharedInformerFactory(client);
    var informer = factory.sharedIndexInformerFor(
        (CallGeneratorParams p) -> core.listNamespacedConfigMap(namespace).resourceVersion(p.resourceVersion).timeoutSeconds(p.timeoutSeconds)
            .watch(p.watch).buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class);
    CountDownLatch seen = new CountDownLatch(1);
    informer.addEventHandler(new ResourceEventHandler<V1ConfigMap>() {
      @Override
      public void onAdd(V1ConfigMap map) {
        if (map.getMetadata().getName().equals("last")) {
          seen.countDown();
        }
      }

      @Override
      public void onUpdate(V1ConfigMap before, V1ConfigMap after) {}

      @Override
      public void onDelete(V1ConfigMap map, boolean unknown) {}
    });
    factory.startAllRegisteredInformers();
    seen.await();
    System.out.println("informer " + informer.getIndexer().list().stream().map(o -> name(o.getMetadata())).sorted().collect(Collectors.joining(" ")));
    factory.stopAllRegisteredInformers();
  }

  interface Write {
    void run() throws ApiException;
  }

  static void refused(String what, Write write) {
    try {
      write.run();
      System.out.println(what + " was not refused");
    } catch (ApiException e) {
      System.out.println(what + " " + e.getCode() + " " + e.getResponseBody().replace('\n', ' '));
    }
  }

  static void write() {
    V1ConfigMap map = new V1ConfigMap().metadata(new V1ObjectMeta().name("new"));
    refused("create", () -> core.createNamespacedConfigMap(namespace, map).execute());
    refused("update", () -> core.replaceNamespacedConfigMap("a", namespace, map).execute());
    refused("patch", () -> core.patchNamespacedConfigMap("a", namespace, new V1Patch("[]")).execute());
    refused("delete", () -> core.deleteNamespacedConfigMap("a", namespace).execute());
  }

  public static void main(String[] args) throws Exception {
    namespace = args[1];
    try (FileReader config = new FileReader(System.getenv("KUBECONFIG"))) {
      client = ClientBuilder.kubeconfig(KubeConfig.loadKubeConfig(config)).build();
    }
    client.setReadTimeout(0); // as informers require
    core = new CoreV1Api(client);
    switch (args[0]) {
      case "read" -> read();
      case "watch" -> watch();
      default -> write();
    }
    System.exit(0);
  }
}
