import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ListOptions;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.http.HttpClient;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;

/** Asks a Kubernetes API with fabric8's client, and prints what it answers (test/clients/doc.go). Its first argument is the class of an HTTP client. */
public class Client {
  private static KubernetesClient client;
  private static String namespace;

  static String names(List<? extends HasMetadata> items) {
    return items.stream().map(Client::name).collect(Collectors.joining(" "));
  }

  static String name(HasMetadata o) {
    return o.getMetadata().getName() + "@" + o.getMetadata().getResourceVersion();
  }

  static String value(ConfigMap map) {
    return map.getData() == null ? "" : map.getData().getOrDefault("v", "");
  }

  static void read() {
    var maps = client.configMaps().inNamespace(namespace);
    System.out.println("version " + client.getKubernetesVersion().getGitVersion());
    System.out.println("list " + names(maps.list().getItems()));
    System.out.println("labels " + names(maps.withLabel("app", "web").list().getItems()));
    System.out.println("fields " + names(maps.withField("metadata.name", "b").list().getItems()));
    List<ConfigMap> pages = new ArrayList<>();
    String next = null;
    do {
      ListOptions options = new ListOptionsBuilder().withLimit(1L).withContinue(next).build();
      var page = maps.list(options);
      pages.addAll(page.getItems());
      next = page.getMetadata().getContinue();
    } while (next != null && !next.isEmpty());
    System.out.println("pages " + names(pages));
    ConfigMap a = maps.withName("a").get();
    System.out.println("get " + name(a) + " " + value(a));
    var web = client.apps().deployments().inNamespace(namespace).withName("web").get();
    System.out.println("deployment " + web.getSpec().getReplicas() + " "
        + web.getSpec().getTemplate().getSpec().getContainers().get(0).getImage() + " " + web.getMetadata().getCreationTimestamp());
    var kind = new ResourceDefinitionContext.Builder().withGroup("past.example.com").withVersion("v1").withKind("Lamp").withPlural("lamps")
        .withNamespaced(true).build();
    for (GenericKubernetesResource lamp : client.genericKubernetesResources(kind).inNamespace(namespace).list().getItems()) {
      System.out.println("custom " + name(lamp) + " " + lamp.get("spec", "color"));
    }
    System.out.println("missing " + maps.withName("none").get());
    System.out.println("supports " + client.supports("past.example.com/v1", "Lamp") + " " + client.supports("past.example.com/v1", "None"));
    System.out.println("namespace " + client.namespaces().withName(namespace).get().getMetadata().getName());
  }

  static void watch() throws InterruptedException {
    var maps = client.configMaps().inNamespace(namespace);
    var list = maps.list();
    System.out.println("listed " + names(list.getItems()));
    CountDownLatch last = new CountDownLatch(1);
    var options = new ListOptionsBuilder().withResourceVersion(list.getMetadata().getResourceVersion()).withAllowWatchBookmarks(true).build();
    try (var watch = maps.watch(options, new Watcher<ConfigMap>() {
      @Override
      public void eventReceived(Action action, ConfigMap map) {
        if (action == Action.BOOKMARK || last.getCount() == 0) {
          return;
        }
        System.out.println(action + " " + name(map) + " " + value(map));
        if (map.getMetadata().getName().equals("last")) {
          last.countDown();
        }
      }

      @Override
      public void onClose(WatcherException cause) {
        System.out.println("closed " + cause);
        last.countDown();
      }
    })) {
      last.await();
    }
    // An informer begins with the end.
    CountDownLatch seen = new CountDownLatch(1);
    try (SharedIndexInformer<ConfigMap> informer = maps.runnableInformer(0)) {
      informer.addEventHandler(new ResourceEventHandler<ConfigMap>() {
        @Override
        public void onAdd(ConfigMap map) {
          if (map.getMetadata().getName().equals("last")) {
            seen.countDown();
          }
        }

        @Override
        public void onUpdate(ConfigMap before, ConfigMap after) {}

        @Override
        public void onDelete(ConfigMap map, boolean unknown) {}
      });
      informer.run();
      seen.await();
      System.out.println("informer " + informer.getStore().list().stream().map(Client::name).sorted().collect(Collectors.joining(" ")));
    }
  }

  static void refused(String what, Runnable write) {
    try {
      write.run();
      System.out.println(what + " was not refused");
    } catch (KubernetesClientException e) {
      System.out.println(what + " " + e.getCode() + " " + e.getMessage().replace('\n', ' '));
    }
  }

  static void write() {
    var maps = client.configMaps().inNamespace(namespace);
    ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName("new").withNamespace(namespace).endMetadata().build();
    refused("create", () -> maps.resource(map).create());
    refused("apply", () -> maps.resource(map).serverSideApply());
    refused("update", () -> maps.withName("a").edit(m -> new ConfigMapBuilder(m).addToData("v", "9").build()));
    refused("delete", () -> maps.withName("a").delete());
  }

  public static void main(String[] args) throws Exception {
    namespace = args[2];
    var factory = (HttpClient.Factory) Class.forName(args[0]).getDeclaredConstructor().newInstance();
    try (KubernetesClient c = new KubernetesClientBuilder().withHttpClientFactory(factory).build()) {
      client = c;
      switch (args[1]) {
        case "read" -> read();
        case "watch" -> watch();
        default -> write();
      }
    }
    System.exit(0);
  }
}
