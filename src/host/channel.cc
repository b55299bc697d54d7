// The calls of offpath.h about a channel as a whole.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "channel/interruption.h"
#include "host/connection.h"
#include "link/handshake/handshake.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::host {
namespace {

constexpr std::int64_t connect_wait_ns = 5 * second_ns;
constexpr std::int64_t close_wait_ns = second_ns;
constexpr std::uint64_t staging_bytes_max = 1ull << 30;

std::string text_or_environment(const char* given, const char* variable) {
  if (given != nullptr && *given != '\0') return given;
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

// The options that the program set; the others have defaults.
Result<ofp_connect_options> complete(const ofp_connect_options* given) {
  ofp_connect_options options{};
  if (given != nullptr) {
    OFP_TRY(check_struct_bytes(given->struct_bytes, sizeof options, "ofp_connect_options"));
    std::memcpy(&options, given, std::min<std::size_t>(given->struct_bytes, sizeof options));
  }
  if (options.wait_ns == 0) options.wait_ns = connect_wait_ns;
  if (options.staging_bytes_max == 0) options.staging_bytes_max = staging_bytes_max;
  return options;
}

Status connect(const char* address_text, const ofp_connect_options* given, ofp_channel** channel) {
  OFP_TRY(required(channel, "channel"));
  *channel = nullptr;
  OFP_ASSIGN(const ofp_connect_options options, complete(given));
  const std::string where = text_or_environment(address_text, "OFFPATH_AGENT");
  OFP_ASSIGN(const link::Address address, where.empty() ? link::find_default_agent() : link::Address::parse(where));
  link::HostOptions host;
  host.name = options.name != nullptr ? options.name : program_invocation_short_name;
  if (options.request_ring_slots != 0) host.layout.request_slots = options.request_ring_slots;
  host.force_staging = options.force_staging != 0;
  if (address.kind != link::Address::Kind::unix_socket) {
    host.key_file = text_or_environment(options.key_file, "OFFPATH_KEY_FILE");
    host.tls_ca_file = text_or_environment(options.tls_ca_file, "OFFPATH_TLS_CA_FILE");
  }
  OFP_ASSIGN(auto link, link::connect(address, host, deadline_after(monotonic_ns(), options.wait_ns)));
  *channel = new ofp_channel{std::make_shared<Connection>(std::move(link), host.layout, options.staging_bytes_max)};
  return {};
}

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  const std::size_t length = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

Status fill_info(const Connection& connection, ofp_channel_info* info) {
  OFP_TRY(check_struct_bytes(info->struct_bytes, sizeof *info, "ofp_channel_info"));
  const link::LinkTraits& traits = connection.end.traits();
  const wire::Welcome& welcome = connection.end.welcome();
  const channel::HostCounters counters = connection.end.counters();
  ofp_channel_info full{};
  full.struct_bytes = info->struct_bytes;
  full.one_sided = traits.one_sided ? 1 : 0;
  full.staged = traits.staged ? 1 : 0;
  full.threads = traits.host_threads;
  copy_text(full.link, traits.name);
  copy_text(full.link_reason, traits.reason);
  copy_text(full.agent_name, welcome.agent_name);
  copy_text(full.agent_version, welcome.agent_version);
  full.agent_incarnation = welcome.incarnation;
  full.agent_pid = welcome.pid;
  full.memory_bytes_max = welcome.memory_bytes_max;
  full.posted = counters.posted;
  full.bytes_posted = counters.bytes_posted;
  full.pulled = counters.pulled;
  full.failed = counters.failed;
  full.wakes_sent = counters.wakes_sent;
  full.sleeps = counters.sleeps;
  if (info->struct_bytes > sizeof full) std::memset(info, 0, info->struct_bytes);
  std::memcpy(info, &full, std::min<std::size_t>(full.struct_bytes, sizeof full));
  return {};
}

Status probe(Connection& connection, std::int64_t wait_ns, std::int64_t* seen_ns, std::int64_t* returned_ns) {
  OFP_ASSIGN(const channel::Reply reply, connection.end.call(wire::EntryKind::probe, {}, connection.deadline(wait_ns)));
  const TimeNs returned = connection.end.now();
  wire::Probed probed{};
  if (reply.kind != wire::ReplyKind::probed)
    return fail(Error::protocol, "the agent answered a probe with reply kind {}", static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, probed));
  if (seen_ns != nullptr) *seen_ns = probed.seen_ns;
  if (returned_ns != nullptr) *returned_ns = returned;
  return {};
}

}  // namespace

void Connection::close(std::int64_t wait_ns) {
  const TimeNs give_up = deadline(wait_ns);
  std::vector<std::uint32_t> streams;
  {
    const std::lock_guard lock(own_mutex_);
    streams.swap(open_streams_);
  }
  for (const std::uint32_t stream : streams)
    if (end.now() < give_up) (void)end.close_stream(stream, give_up);
  end.close(std::max<TimeNs>(0, give_up - end.now()));
  requests.close();
}

void Connection::add_stream(std::uint32_t number) {
  const std::lock_guard lock(own_mutex_);
  open_streams_.push_back(number);
}

void Connection::remove_stream(std::uint32_t number) {
  const std::lock_guard lock(own_mutex_);
  std::erase(open_streams_, number);
}

void Connection::remember(HostEnd::RangeName range) {
  std::optional<HostEnd::RangeName> oldest;
  {
    const std::lock_guard lock(own_mutex_);
    own_ranges_.push_back(range);
    if (own_ranges_.size() <= own_ranges_max) return;
    oldest = own_ranges_.front();
    own_ranges_.pop_front();
    // The send may be one that does not wait, for room neither.
    if (!end.idle(*oldest) || !end.has_room(0) || !wait_range_users(*oldest, 0)) {
      own_ranges_.push_back(*oldest);
      return;
    }
  }
  (void)end.retire(*oldest, 0);
}

void Connection::add_range_user(const std::shared_ptr<RangeUser>& user) {
  const std::lock_guard lock(users_mutex_);
  std::erase_if(range_users_, [](const auto& each) { return each.expired(); });
  range_users_.push_back(user);
}

Status Connection::wait_range_users(HostEnd::RangeName range, TimeNs deadline) {
  std::vector<std::weak_ptr<RangeUser>> users;
  {
    const std::lock_guard lock(users_mutex_);
    users = range_users_;
  }
  for (const auto& each : users)
    if (const std::shared_ptr<RangeUser> user = each.lock()) OFP_TRY(user->leave(range, deadline));
  return {};
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_connect(const char* address, const ofp_connect_options* options, ofp_channel** channel, ofp_error* error) {
  return guarded(error, [&] { return connect(address, options, channel); });
}

void ofp_close(ofp_channel* channel) {
  if (channel == nullptr) return;
  // A child only gives up its copies; the parent's channel lives on.
  if (channel->connection->here()) channel->connection->close(close_wait_ns);
  delete channel;
}

int ofp_channel_info_get(ofp_channel* channel, ofp_channel_info* info, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(info, "info"));
    OFP_TRY(channel->connection->here());
    return fill_info(*channel->connection, info);
  });
}

int ofp_event_fd(ofp_channel* channel) { return channel != nullptr ? channel->connection->end.event_fd() : -1; }

void ofp_interruptible(int (*is_due)(void* user), void* user) { channel::interruption() = {is_due, user}; }

int ofp_poll(ofp_channel* channel, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    OFP_TRY(channel->connection->end.poll());
    channel->connection->requests.look();
    return {};
  });
}

int ofp_probe(ofp_channel* channel, int64_t wait_ns, int64_t* seen_ns, int64_t* returned_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    return probe(*channel->connection, wait_ns, seen_ns, returned_ns);
  });
}

}  // extern "C"
