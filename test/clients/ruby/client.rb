# Asks a Kubernetes API with kubeclient, and prints what it answers (test/clients/doc.go).

require 'json'
require 'kubeclient'

$stdout.sync = true
WHAT, NAMESPACE = ARGV

config = Kubeclient::Config.read(ENV.fetch('KUBECONFIG')).context

def client(context, path, version)
  Kubeclient::Client.new(context.api_endpoint + path, version, ssl_options: context.ssl_options, auth_options: context.auth_options)
end

CORE = client(config, '/api', 'v1')
APPS = client(config, '/apis/apps', 'v1')
LAMPS = client(config, '/apis/past.example.com', 'v1')

def name(o) = "#{o.metadata.name}@#{o.metadata.resourceVersion}"
def names(items) = items.map { |o| name(o) }.join(' ')
def value(o) = o.data&.v.to_s

def read
  puts "valid #{CORE.api_valid?}"
  puts "list #{names(CORE.get_config_maps(namespace: NAMESPACE))}"
  puts "labels #{names(CORE.get_config_maps(namespace: NAMESPACE, label_selector: 'app=web'))}"
  puts "fields #{names(CORE.get_config_maps(namespace: NAMESPACE, field_selector: 'metadata.name=b'))}"
  pages = []
  token = nil
  loop do
    page = CORE.get_config_maps(namespace: NAMESPACE, limit: 1, continue: token)
    pages += page.to_a
    token = page.continue
    break if page.last?
  end
  puts "pages #{names(pages)}"
  a = CORE.get_config_map('a', NAMESPACE)
  puts "get #{name(a)} #{value(a)}"
  web = APPS.get_deployment('web', NAMESPACE)
  puts "deployment #{web.spec.replicas} #{web.spec.template.spec.containers[0].image} #{web.metadata.creationTimestamp}"
  LAMPS.get_lamps(namespace: NAMESPACE).each { |lamp| puts "custom #{name(lamp)} #{lamp.spec.to_h.to_json}" }
  begin
    CORE.get_config_map('none', NAMESPACE)
  rescue Kubeclient::ResourceNotFoundError => e
    puts "missing #{e.error_code} #{e.message}"
  end
  puts "all #{CORE.all_entities.slice('config_map', 'namespace').to_h { |k, v| [k, v.select { |o| [o.metadata.namespace, o.metadata.name].include?(NAMESPACE) }.size] }}"
  puts "namespace #{CORE.get_namespace(NAMESPACE).metadata.name}"
end

def watch
  maps = CORE.get_config_maps(namespace: NAMESPACE)
  puts "listed #{names(maps)}"
  CORE.watch_config_maps(namespace: NAMESPACE, resource_version: maps.resourceVersion) do |event|
    puts "#{event.type} #{name(event.object)} #{value(event.object)}"
    break if event.object.metadata.name == 'last'
  end
end

def refused(what)
  yield
  puts "#{what} was not refused"
rescue Kubeclient::HttpError => e
  puts "#{what} #{e.error_code} #{e.message}"
end

def write
  map = Kubeclient::Resource.new(metadata: { name: 'new', namespace: NAMESPACE })
  refused('create') { CORE.create_config_map(map) }
  refused('update') { CORE.update_config_map(Kubeclient::Resource.new(metadata: { name: 'a', namespace: NAMESPACE })) }
  refused('patch') { CORE.patch_config_map('a', { data: { v: '9' } }, NAMESPACE) }
  refused('delete') { CORE.delete_config_map('a', NAMESPACE) }
end

send(WHAT)
