// Asks a Kubernetes API with the official client for JavaScript, and prints what it answers (test/clients/doc.go).

import * as k8s from '@kubernetes/client-node';

const [what, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const path = `/api/v1/namespaces/${namespace}/configmaps`;

const name = (o) => `${o.metadata.name}@${o.metadata.resourceVersion}`;
const names = (items) => items.map(name).join(' ');
const value = (map) => map.data?.v ?? '';

async function read() {
  console.log('version', (await config.makeApiClient(k8s.VersionApi).getCode()).gitVersion);
  console.log('list', names((await core.listNamespacedConfigMap({ namespace })).items));
  console.log('labels', names((await core.listNamespacedConfigMap({ namespace, labelSelector: 'app=web' })).items));
  console.log('fields', names((await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=b' })).items));
  const pages = [];
  let next;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, limit: 1, _continue: next });
    pages.push(...page.items);
    next = page.metadata._continue;
  } while (next);
  console.log('pages', names(pages));
  const a = await core.readNamespacedConfigMap({ name: 'a', namespace });
  console.log('get', name(a), value(a));
  const web = await config.makeApiClient(k8s.AppsV1Api).readNamespacedDeployment({ name: 'web', namespace });
  console.log('deployment', web.spec.replicas, web.spec.template.spec.containers[0].image, web.metadata.creationTimestamp.toISOString());
  const custom = config.makeApiClient(k8s.CustomObjectsApi);
  const lamps = await custom.listNamespacedCustomObject({ group: 'past.example.com', version: 'v1', namespace, plural: 'lamps' });
  for (const lamp of lamps.items) {
    console.log('custom', name(lamp), JSON.stringify(lamp.spec));
  }
  const generic = k8s.KubernetesObjectApi.makeApiClient(config); // it reads the discovery
  console.log('generic', name(await generic.read({ apiVersion: 'past.example.com/v1', kind: 'Lamp', metadata: { name: 'hall', namespace } })));
  await core.readNamespacedConfigMap({ name: 'none', namespace }).catch((e) => console.log('missing', e.code, String(e.body).trim()));
  console.log('namespace', (await core.readNamespace({ name: namespace })).metadata.name);
}

async function watch() {
  const list = await core.listNamespacedConfigMap({ namespace });
  console.log('listed', names(list.items));
  await new Promise((resolve, reject) => {
    let watching;
    let over = false;
    const seen = (type, map) => {
      if (type === 'BOOKMARK' || over) {
        return;
      }
      console.log(type, name(map), value(map));
      if (map.metadata.name === 'last') {
        over = true;
        watching.then((c) => c.abort());
        resolve();
      }
    };
    const query = { allowWatchBookmarks: true, resourceVersion: list.metadata.resourceVersion };
    watching = new k8s.Watch(config).watch(path, query, seen, (e) => over || reject(e ?? new Error('the watch ended')));
  });
  const informer = k8s.makeInformer(config, path, () => core.listNamespacedConfigMap({ namespace })); // it begins with the end
  const last = new Promise((resolve, reject) => {
    informer.on('add', (map) => map.metadata.name === 'last' && resolve());
    informer.on('error', reject);
  });
  await informer.start();
  await last;
  console.log('informer', informer.list().map(name).sort().join(' '));
  await informer.stop();
}

async function write() {
  const body = { metadata: { name: 'new' } };
  const refused = (what, call) => call.then(() => console.log(what, 'was not refused'), (e) => console.log(what, e.code, JSON.stringify(e.body)));
  await refused('create', core.createNamespacedConfigMap({ namespace, body }));
  await refused('update', core.replaceNamespacedConfigMap({ name: 'a', namespace, body }));
  await refused('patch', core.patchNamespacedConfigMap({ name: 'a', namespace, body: [] }));
  await refused('delete', core.deleteNamespacedConfigMap({ name: 'a', namespace }));
}

await { read, watch, write }[what]();
process.exit(0);
