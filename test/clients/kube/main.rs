//! Asks a Kubernetes API with kube, and prints what it answers (test/clients/doc.go).

use std::env;

use futures::{Stream, TryStreamExt, pin_mut};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    discovery,
    runtime::watcher::{self, Event},
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn names<K: ResourceExt>(items: &[K]) -> String {
    let all: Vec<_> = items.iter().map(|o| format!("{}@{}", o.name_any(), o.resource_version().unwrap_or_default())).collect();
    all.join(" ")
}

fn data(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|d| d.get("v")).map_or("", |v| v)
}

async fn read(client: Client, namespace: &str) -> Result<()> {
    println!("version {}", client.apiserver_version().await?.git_version);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    println!("list {}", names(&maps.list(&ListParams::default()).await?.items));
    println!("labels {}", names(&maps.list(&ListParams::default().labels("app=web")).await?.items));
    println!("fields {}", names(&maps.list(&ListParams::default().fields("metadata.name=b")).await?.items));
    println!("metadata {}", names(&maps.list_metadata(&ListParams::default()).await?.items));
    let mut pages = vec![];
    let mut params = ListParams::default().limit(1);
    loop {
        let page = maps.list(&params).await?;
        pages.push(names(&page.items));
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params = params.continue_token(&next),
            _ => break,
        }
    }
    println!("pages {}", pages.join(" "));
    let a = maps.get("a").await?;
    println!("get {} {}", a.name_any(), data(&a));
    let web = Api::<Deployment>::namespaced(client.clone(), namespace).get("web").await?;
    let spec = web.spec;
    let created = web.metadata.creation_timestamp.unwrap().0;
    println!("deployment {} {} {}", spec.replicas.unwrap_or(1), spec.template.spec.unwrap().containers[0].image.clone().unwrap_or_default(), created);
    let kind = discovery::pinned_kind(&client, &GroupVersionKind::gvk("past.example.com", "v1", "Lamp")).await?.0;
    let lamps: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    for lamp in lamps.list(&ListParams::default()).await? {
        println!("custom {} {}", lamp.name_any(), lamp.data["spec"]);
    }
    if let Err(Error::Api(status)) = maps.get("none").await {
        println!("missing {} {} {}", status.code, status.reason, status.message);
    }
    let mut groups: Vec<_> = discovery::Discovery::new(client.clone()).filter(&["apps", "past.example.com"]).run().await?.groups()
        .map(|g| g.name().to_owned()).collect();
    groups.sort();
    println!("groups {}", groups.join(" "));
    println!("namespace {}", Api::<Namespace>::all(client).get(namespace).await?.name_any());
    Ok(())
}

/// Prints the changes of a watcher until a ConfigMap "last" is there.
async fn follow(how: &str, maps: Api<ConfigMap>, config: watcher::Config) -> Result<()> {
    let events = watcher::watcher(maps, config);
    pin_mut!(events);
    let mut first = vec![];
    while let Some(event) = next(&mut events).await? {
        let (what, map) = match event {
            Event::Init => continue,
            Event::InitApply(map) => {
                first.push(map);
                continue;
            }
            Event::InitDone => {
                first.sort_by_key(|m| m.name_any());
                println!("{how} begins {}", names(&first));
                if first.iter().any(|m| m.name_any() == "last") {
                    return Ok(());
                }
                continue;
            }
            Event::Apply(map) => ("apply", map),
            Event::Delete(map) => ("delete", map),
        };
        println!("{how} {what} {}@{} {}", map.name_any(), map.resource_version().unwrap_or_default(), data(&map));
        if map.name_any() == "last" {
            break;
        }
    }
    Ok(())
}

async fn next<T>(events: &mut (impl Stream<Item = std::result::Result<T, watcher::Error>> + Unpin)) -> Result<Option<T>> {
    Ok(events.try_next().await?)
}

async fn watch(client: Client, namespace: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let list = maps.list(&ListParams::default()).await?;
    println!("listed {}", names(&list.items));
    let events = maps.watch(&WatchParams::default(), &list.metadata.resource_version.unwrap_or_default()).await?;
    pin_mut!(events);
    while let Some(event) = events.try_next().await? {
        let (what, map) = match event {
            WatchEvent::Added(map) => ("ADDED", map),
            WatchEvent::Modified(map) => ("MODIFIED", map),
            WatchEvent::Deleted(map) => ("DELETED", map),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(status.message.into()),
        };
        println!("{what} {}@{} {}", map.name_any(), map.resource_version().unwrap_or_default(), data(&map));
        if map.name_any() == "last" {
            break;
        }
    }
    follow("watcher", maps.clone(), watcher::Config::default().page_size(1)).await?;
    follow("streaming", maps, watcher::Config::default().streaming_lists()).await
}

async fn write(client: Client, namespace: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let mut new = ConfigMap::default();
    new.metadata.name = Some("new".into());
    let refused = |what: &str, error: Option<Error>| match error {
        Some(Error::Api(status)) => println!("{what} {} {}", status.code, status.message),
        other => println!("{what} {other:?}"),
    };
    refused("create", maps.create(&PostParams::default(), &new).await.err());
    refused("apply", maps.patch("a", &PatchParams::apply("test"), &Patch::Apply(&new)).await.err());
    refused("delete", maps.delete("a", &DeleteParams::default()).await.err());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    let client = Client::try_default().await?;
    match args[1].as_str() {
        "read" => read(client, &args[2]).await,
        "watch" => watch(client, &args[2]).await,
        _ => write(client, &args[2]).await,
    }
}
