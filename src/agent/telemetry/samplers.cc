#include "agent/telemetry/samplers.h"

#include <sys/stat.h>

#include <fcntl.h>
#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "link/control/authentication.h"

namespace offpath::agent {

namespace {

constexpr std::size_t key_file_bytes_max = 4096;
constexpr TimeNs look_up_again_ns = 10 * second_ns;
constexpr TimeNs last_read_ns = second_ns;  // a read that takes longer at the end is left alone

// Like the keys of channels: a file that others may read is refused.
Result<exchange::SamplerKey> load_key(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, fmt::format("sampling.key_file {}: open", path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(Error::denied,
                "sampling.key_file {} is accessible to users other than its owner (mode {:o}): chmod 600", path,
                status.st_mode & 0777u);
  std::array<std::byte, key_file_bytes_max + 1> bytes{};
  const ssize_t length = ::read(file.get(), bytes.data(), bytes.size());
  if (length < 0) return fail_errno(errno, fmt::format("sampling.key_file {}: read", path));
  return exchange::sampler_key(Bytes(bytes).first(static_cast<std::size_t>(length)));
}

}  // namespace

Result<std::unique_ptr<Samplers>> Samplers::make(loop::Loop& loop, const SamplingSettings& settings, TimeNs now) {
  std::unique_ptr<Samplers> samplers(new Samplers(loop));
  samplers->interval_ns_ = settings.interval_ns;
  OFP_TRY(samplers->open_own(settings, now));
  OFP_TRY(samplers->open_hosts(settings, now));
  samplers->note_deadline();
  return samplers;
}

Samplers::~Samplers() {
  for (const auto& host : hosts_) {
    if (host->port) loop_.unwatch(host->port->fd());
  }
}

Status Samplers::open_hosts(const SamplingSettings& settings, TimeNs now) {
  if (settings.hosts.empty()) return {};
  buffer_.resize(OFS_DATAGRAM_MAX + 1);
  OFP_ASSIGN(const exchange::SamplerKey key, load_key(settings.key_file));
  names_ = std::make_unique<loop::JobPool>(loop_, loop::JobPoolOptions{1, 64});
  for (const HostSettings& each : settings.hosts) {
    exchange::SamplingOptions options;
    options.producer = each.name;
    options.interval_ns = each.interval_ns;
    options.deadline_ns = settings.deadline_ns;
    options.silent_after_ns = 3 * (each.interval_ns + settings.deadline_ns);
    options.key = key;
    options.session = link::random_number();
    hosts_.push_back(std::make_unique<Host>(each.address, std::move(options), now));
  }
  return {};
}

void Samplers::look_up(Host& host) {
  host.look_up_at = never;
  auto found = std::make_shared<Result<exchange::UdpPort>>(fail(Error::cancelled, "the look-up was cancelled"));
  names_->start(
      [address = host.address, found]() -> Status {
        *found = exchange::UdpPort::connect(address);
        return {};
      },
      [this, &host, found](const Status&, TimeNs now) { on_looked_up(host, std::move(*found), now); });
}

void Samplers::on_looked_up(Host& host, Result<exchange::UdpPort> port, TimeNs now) {
  host.look_up_at = deadline_after(now, look_up_again_ns);
  Status watched;
  if (port)
    watched = loop_.watch(port->fd(), EPOLLIN, [this, &host](std::uint32_t, TimeNs at) { on_readable(host, at); });
  if (port && watched) {
    if (host.port) loop_.unwatch(host.port->fd());
    host.port = std::move(*port);
    host.trouble.clear();
  } else {
    const std::string trouble = port ? watched.error().message : port.error().message;
    if (trouble != host.trouble)
      log(LogLevel::warning, "host {}: {}; the look-up is repeated", host.sampling.options().producer, trouble);
    host.trouble = trouble;
  }
  note_deadline();
}

Status Samplers::open_own(const SamplingSettings& settings, TimeNs now) {
  if (settings.sources.empty()) return {};
  auto own = std::make_unique<Own>();
  own->sources = std::make_shared<Sources>();
  Sources& sources = *own->sources;
  sources.settings = settings.sources;
  sources.memory.resize(OFS_MEMORY_MIN);
  OFP_ASSERT(ofs_sources_init(&sources.all, sources.memory.data(), sources.memory.size(), nullptr));
  for (const auto& each : sources.settings) {
    const ofs_source_options options = each->options();
    if (!ofs_sources_add(&sources.all, &options))
      return fail(Error::invalid, "{}: source: {}", each->where, sources.all.why);
  }
  std::vector<std::uint8_t> bytes(1 << 20);
  const std::size_t length = ofs_sources_schema(&sources.all, "host", bytes.data(), bytes.size());
  auto schema = exchange::decode_schema(std::as_bytes(std::span(bytes)).first(length));
  if (!schema) return fail(Error::invalid, "[[source]]: {}", schema.error().message);
  own->schema = std::move(*schema);
  own->newest.schema = own->schema.id();
  own->newest.producer = settings.own_name;
  own->newest.values.reset(own->schema.fields.size());
  own->next_at = own->due = now;
  own_ = std::move(own);
  reads_ = std::make_unique<loop::JobPool>(loop_, loop::JobPoolOptions{1, 1, {.end_within_ns = last_read_ns}});
  return {};
}

bool Samplers::poll(TimeNs now) {
  if (now < next_at_) return false;
  for (const auto& host : hosts_) {
    if (now >= host->look_up_at) {
      // A host that answers keeps its address.
      if (!host->port || host->sampling.silent(now))
        look_up(*host);
      else
        host->look_up_at = deadline_after(now, look_up_again_ns);
    }
    if (!host->port || now < host->sampling.next_deadline()) continue;
    host->sampling.on_time(now, effects_);
    send(*host);
  }
  if (own_ && now >= own_->due) read_own(now);
  note_deadline();
  return true;
}

void Samplers::note_deadline() {
  next_at_ = never;
  for (const auto& host : hosts_) {
    next_at_ = std::min(next_at_, host->look_up_at);
    if (host->port) next_at_ = std::min(next_at_, host->sampling.next_deadline());
  }
  if (own_) next_at_ = std::min(next_at_, own_->due);
}

void Samplers::on_readable(Host& host, TimeNs now) {
  // A flooding host must not occupy the loop: the rest is read in the next round.
  for (int datagrams = 0; datagrams < 16; ++datagrams) {
    const auto datagram = host.port->receive(buffer_);
    if (!datagram) break;
    host.sampling.on_datagram(*datagram, now, real_ns(), effects_);
  }
  send(host);
  note_deadline();
}

void Samplers::send(Host& host) {
  for (const exchange::SamplerRequest& request : effects_.requests) host.port->send(request);
  effects_.requests.clear();
  effects_.samples = 0;
}

// Between samples only commands are looked at.
void Samplers::read_own(TimeNs now) {
  Own& own = *own_;
  const bool samples = now >= own.next_at;
  if (samples) own.next_at = std::max(deadline_after(own.next_at, interval_ns_), now);
  own.due = never;
  reads_->start(
      [sources = own.sources, samples, now]() -> Status {
        const TimeNs began = monotonic_ns();
        if (samples)
          ofs_sources_read(&sources->all, now);
        else
          ofs_sources_step(&sources->all, now);
        sources->spent_ns += static_cast<std::uint64_t>(monotonic_ns() - began);
        sources->read_at_real_ns = real_ns();
        return {};
      },
      [this, samples](const Status& status, TimeNs at) { on_read(samples, status.has_value(), at); });
}

void Samplers::on_read(bool sampled, bool well, TimeNs now) {
  Own& own = *own_;
  const Sources& sources = *own.sources;
  own.due = well ? std::min(own.next_at, ofs_sources_deadline(&sources.all)) : deadline_after(now, interval_ns_);
  own.spent_ns = sources.spent_ns;
  own.failures = sources.all.failures;
  note_deadline();
  if (!sampled || !well) return;
  for (std::size_t i = 0; i < own.schema.fields.size(); ++i) {
    if (sources.all.present[i])
      own.newest.values.set_bits(i, sources.all.bits[i]);
    else
      own.newest.values.set_missing(i);
  }
  ++own.newest.sequence;
  own.newest.source_ns = own.newest.receive_ns = sources.read_at_real_ns;
  own.newest_at = now;
}

// ---- status

std::string_view way_name(Sampled::Way way) noexcept {
  constexpr std::string_view names[] = {"host", "own", "gauges"};
  return names[static_cast<std::size_t>(way)];
}

Sampled sampled_of(const exchange::Gauges::Set& set, TimeNs now) {
  Sampled sampled;
  sampled.way = Sampled::Way::gauges;
  sampled.producer = set.newest.producer;
  sampled.where = fmt::format("{}, channel {}", set.program, set.channel);
  sampled.schema = set.schema;
  sampled.sample = set.newest;
  sampled.fresh = set.newest_at != never;
  // The age of a set counts from its write, that of single values from their read.
  if (sampled.fresh)
    sampled.age_ns = now - set.newest_at + std::max<std::int64_t>(set.newest.receive_ns - set.newest.source_ns, 0);
  sampled.samples = set.counters.samples;
  sampled.wait_ns = set.counters.read_ns;
  sampled.host_cpu_ns = set.writer_cpu_ns;
  sampled.failed = set.counters.failures + set.counters.torn;
  sampled.missing = set.newest.values.missing();
  return sampled;
}

void Samplers::visit(const SampleVisitor& visitor) const {
  for (const auto& host : hosts_) {
    if (host->sampling.newest_at() != never)
      visitor(host->sampling.schema(), host->sampling.newest(), host->sampling.newest_at());
  }
  if (own_ && own_->newest_at != never) visitor(own_->schema, own_->newest, own_->newest_at);
}

std::vector<Sampled> Samplers::status(TimeNs now) const {
  std::vector<Sampled> all;
  for (const auto& host : hosts_) {
    const exchange::Sampling& sampling = host->sampling;
    Sampled& sampled = all.emplace_back();
    sampled.producer = sampling.options().producer;
    sampled.where = host->address;
    sampled.schema = sampling.schema();
    sampled.sample = sampling.newest();
    sampled.fresh = sampling.newest_at() != never && !sampling.silent(now);
    sampled.age_ns = sampling.newest_at() != never ? now - sampling.newest_at() : 0;
    sampled.trouble = host->trouble.empty() ? sampling.trouble() : host->trouble;
    sampled.samples = sampling.counters().samples;
    sampled.wait_ns = sampling.counters().wait_ns;
    sampled.host_cpu_ns = sampling.sampler().cpu_ns;
    sampled.failed = sampling.counters().missed;
    sampled.missing = sampling.newest().values.missing();
    sampled.requests = sampling.counters();
    if (sampling.clock().known()) {
      sampled.clock_ahead_ns = sampling.clock().offset_ns(now) - (real_ns() - now);
      sampled.clock_bound_ns = sampling.clock().bound_ns(now);
    }
    sampled.clock_jumps = sampling.clock().jumps();
    sampled.host_refused = sampling.sampler().refused;
    sampled.host_resident_bytes = std::uint64_t{sampling.sampler().resident_kb} << 10;
  }
  if (own_) {
    Sampled& sampled = all.emplace_back();
    sampled.way = Sampled::Way::own;
    sampled.producer = own_->newest.producer;
    sampled.where = "this machine";
    sampled.schema = own_->schema;
    sampled.sample = own_->newest;
    sampled.fresh = own_->newest_at != never;
    sampled.age_ns = sampled.fresh ? now - own_->newest_at : 0;
    sampled.samples = own_->newest.sequence;
    sampled.wait_ns = sampled.host_cpu_ns = own_->spent_ns;
    sampled.failed = own_->failures;
    sampled.missing = own_->newest.values.missing();
  }
  return all;
}

}  // namespace offpath::agent
