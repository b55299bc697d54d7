#include "wire/message.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "wire/channel_layout.h"
#include "wire/fields.h"

namespace offpath::wire {

namespace {

constexpr std::array<std::string_view, destinations> destination_names = {
    "native", "arrays", "record-batch", "ipc", "ipc-page", "c-abi", "agent-serialise", "serialised"};

constexpr std::array<std::string_view, compressions> compression_names = {"none", "lz4", "zstd"};

// The fields of each message, and what has to hold between them beyond that each is well formed.

constexpr std::string_view row_key = "the row key", column_key = "the column key";

// The largest requests: a computation has four keys and its arguments, a drop two patterns.
static_assert(4 * key_bytes_max + pool_bytes_max + 3 * name_bytes_max + arguments_bytes_max + 1024 <= entry_bytes_max);
static_assert(2 * pattern_bytes_max + pool_bytes_max + 1024 <= entry_bytes_max);
static_assert(2 * key_bytes_max + buffers_max * (sizeof(BufferRef) + sizeof(Node)) + 1024 <= entry_bytes_max);

Status check(const auto&) { return {}; }

// ---- requests

void fields(auto& way, Is<AnnounceRange> auto& m) {
  way.begins("announcement");
  way(m.range, m.generation, m.base, m.length, m.key);
}
Status check(const AnnounceRange& m) {
  if (is_segment(m.range)) return fail(Error::protocol, "announcement: {:#x} is a segment's number", m.range);
  return {};
}

void fields(auto& way, Is<RetireRange> auto& m) {
  way.begins("withdrawal");
  way(m.range, m.generation);
}

void fields(auto& way, Is<OpenStream> auto& m) {
  way.begins("stream opening");
  way(m.stream);
  way.choice(m.destination, Destination::serialised, "destination");
  way.choice(m.compression, Compression::zstd, "compression");
  way(m.rows_max, m.keep, m.ranks, m.rank);
  way.text(m.name, name_bytes_max, "the stream's name");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.schema);
}

void fields(auto& way, Is<CloseStream> auto& m) {
  way.begins("stream closing");
  way(m.stream);
}

// 0 stream u16 | 2 nodes u16 | 4 buffers u16 | 6 set u16 | 8 row key u32 | 12 column key u32 | 16 charge u64 | 24 rows u64 |
// 32 keys, then buffers, then nodes
static_assert(streams_max_max <= 1u << 16 && buffers_max < 1u << 16);
void fields(auto& way, Is<Send> auto& m) {
  way.begins("send");
  auto stream = static_cast<std::uint16_t>(m.stream);
  auto nodes = static_cast<std::uint16_t>(m.nodes.size());
  auto buffers = static_cast<std::uint16_t>(m.buffers.size());
  auto set = static_cast<std::uint16_t>(m.set);
  auto row_key_bytes = static_cast<std::uint32_t>(m.row_key.size());
  auto column_key_bytes = static_cast<std::uint32_t>(m.column_key.size());
  way(stream, nodes, buffers, set, row_key_bytes, column_key_bytes, m.charge, m.rows);
  way.counted(m.row_key, row_key_bytes);
  way.counted(m.column_key, column_key_bytes);
  way.counted(m.buffers, buffers);
  way.counted(m.nodes, nodes);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(m)>>) {
    m.stream = stream;
    m.set = set;
  }
}
Status check(const Send& m) {
  for (const auto& [key, name] : {std::pair(m.row_key, row_key), std::pair(m.column_key, column_key)})
    if (key.size() > key_bytes_max)
      return fail(Error::too_large, "send: {} has {} bytes, at most {} are allowed", name, key.size(), key_bytes_max);
  if (m.buffers.size() > buffers_max)
    return fail(Error::too_large, "a send of {} buffers, at most {} are allowed", m.buffers.size(), buffers_max);
  if (m.set > sets_max) return fail(Error::invalid, "a send names set {} of buffers, the last is {}", m.set, sets_max);
  if (m.set != 0 && !m.nodes.empty()) return fail(Error::invalid, "a send with nodes names set {} of buffers", m.set);
  if (m.set != 0 && m.buffers.size() > set_buffers_max)
    return fail(Error::too_large, "set {} is to have {} buffers, at most {} are allowed", m.set, m.buffers.size(),
                set_buffers_max);
  return {};
}

void fields(auto& way, Is<Move> auto& m) {
  way.begins("move");
  way(m.stream, m.update, m.charge, m.object_bytes);
  way.text(m.row_key, key_bytes_max, row_key);
  way.text(m.column_key, key_bytes_max, column_key);
  auto pieces = static_cast<std::uint32_t>(m.pieces.size());
  way(pieces);
  way.counted(m.pieces, pieces);
}

void fields(auto& way, Is<StepEnd> auto& m) {
  way.begins("end of step");
  way(m.stream);
  way.text(m.row_key, key_bytes_max, row_key);
}

void fields(auto& way, Is<WakeAt> auto& m) {
  way.begins("wake request");
  way(m.stream);
  way.choice(m.word, WakeWord::now, "word");
  way(m.value);
}

void fields(auto& way, Is<NeedCredit> auto& m) {
  way.begins("credit request");
  way(m.stream, m.total);
}

void fields(auto& way, Is<PoolGet> auto& m) {
  way.begins("get");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, row_key);
  way.text(m.column_key, key_bytes_max, column_key);
  way(m.wait_ns);
}

// What lists and drops choose by.
void globs(auto& way, auto& m) {
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_glob, pattern_bytes_max, "the row pattern");
  way.text(m.column_glob, pattern_bytes_max, "the column pattern");
}

void fields(auto& way, Is<PoolList> auto& m) {
  way.begins("list");
  globs(way, m);
  way(m.after);
}

void fields(auto& way, Is<PoolDrop> auto& m) {
  way.begins("drop");
  globs(way, m);
}

void fields(auto& way, Is<PoolWrite> auto& m) {
  way.begins("write");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way(m.offer);
}

void fields(auto& way, Is<PoolQuery> auto& m) {
  way.begins("query");
  globs(way, m);
  way(m.wait_ns, m.query.region, m.query.generation, m.query.offset, m.query.length);
}

void fields(auto& way, Is<QueryNext> auto& m) {
  way.begins("request for an answer's frame");
  way(m.answer, m.index);
}

void fields(auto& way, Is<PushLease> auto& m) {
  way.begins("request for a lease's bytes");
  way(m.lease, m.segment);
}
Status check(const PushLease& m) {
  if (!is_segment(m.segment)) return fail(Error::invalid, "lease {} is to be pushed into region {:#x}, which is no segment", m.lease, m.segment);
  return {};
}

void fields(auto& way, Is<Release> auto& m) {
  way.begins("release");
  way(m.lease);
}

void fields(auto& way, Is<PoolCancel> auto& m) {
  way.begins("cancellation of a get");
  way(m.ticket);
}

// Where an object lies that an agent is to pull.
void object_at(auto& way, BufferRef& at) { way(at.region, at.generation, at.offset, at.length); }
void object_at(auto& way, const BufferRef& at) { way(at.region, at.generation, at.offset, at.length); }

// The object that a request of a member is about.
void keys(auto& way, auto& m) {
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, row_key);
  way.text(m.column_key, key_bytes_max, column_key);
}

void fields(auto& way, Is<PeerPut> auto& m) {
  way.begins("put of a member");
  way(m.user, m.writer, m.number, m.rows, m.keep, m.wait_ns, m.arrow, m.hidden, m.moved, m.recovered, m.offer);
  object_at(way, m.object);
  keys(way, m);
}

void fields(auto& way, Is<PeerGet> auto& m) {
  way.begins("get of a member");
  way(m.user, m.wait_ns, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  keys(way, m);
}

// What is called, and where its outputs go.
void function(auto& way, auto& m) {
  way(m.stores);
  way.text(m.plugin, name_bytes_max, "the plug-in's name");
  way.text(m.function, name_bytes_max, "the function's name");
  way.text(m.result_row, key_bytes_max, "the result's row key");
  way.text(m.result_column, key_bytes_max, "the result's column key");
  way.bytes(m.arguments);
}
Status check_arguments(Bytes arguments) {
  if (arguments.size() > arguments_bytes_max)
    return fail(Error::too_large, "arguments of {} bytes, at most {} are allowed: put what is larger into the row", arguments.size(),
                arguments_bytes_max);
  return {};
}

void fields(auto& way, Is<PoolCompute> auto& m) {
  way.begins("computation");
  keys(way, m);
  way(m.wait_ns);
  function(way, m);
}
Status check(const PoolCompute& m) { return check_arguments(m.arguments); }

void fields(auto& way, Is<PeerCompute> auto& m) {
  way.begins("computation of a member");
  way(m.user, m.wait_ns, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  keys(way, m);
  function(way, m);
}
Status check(const PeerCompute& m) { return check_arguments(m.arguments); }

void fields(auto& way, Is<PeerQuery> auto& m) {
  way.begins("query of a member");
  way(m.user, m.wait_ns, m.number, m.view);
  object_at(way, m.query);
  globs(way, m);
}

void fields(auto& way, Is<PeerQueryNext> auto& m) {
  way.begins("request of a member for an answer's frame");
  way(m.number, m.index, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
}

void fields(auto& way, Is<PeerCancel> auto& m) {
  way.begins("cancellation of a member");
  way.choice(m.what, PeerCancel::What::receive, "what");
  way(m.number);
}

void fields(auto& way, Is<PeerDeliver> auto& m) {
  way.begins("delivery of a member");
  way(m.delivery, m.rows, m.arrow, m.offer);
  object_at(way, m.object);
}

void fields(auto& way, Is<PeerList> auto& m) {
  way.begins("list of a member");
  way(m.user, m.after);
  globs(way, m);
}

void fields(auto& way, Is<PeerDrop> auto& m) {
  way.begins("drop of a member");
  way(m.user);
  globs(way, m);
}

void fields(auto& way, Is<PeerStepEnd> auto& m) {
  way.begins("end of step of a member");
  way(m.user, m.rank, m.ranks);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, row_key);
}

void fields(auto& way, Is<PeerPiece> auto& m) {
  way.begins("piece of a member");
  way(m.user, m.offer);
  object_at(way, m.object);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.header);
}

void fields(auto& way, Is<SiftFlush> auto& m) {
  way.begins("flush");
  way(m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

void fields(auto& way, Is<PeerFlush> auto& m) {
  way.begins("flush of a member");
  way(m.user, m.number, m.wait_ns);
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

// Which tracks are asked for.
void tracks(auto& way, auto& m) {
  way(m.element, m.all, m.first_step, m.last_step);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  auto count = static_cast<std::uint32_t>(m.identifiers.size());
  way(count);
  way.counted(m.identifiers, count);
}
Status check_tracks(const auto& m) {
  if (m.identifiers.size() > tracks_asked_max)
    return fail(Error::too_large, "{} identifiers are asked for, at most {} are allowed at a time", m.identifiers.size(), tracks_asked_max);
  if (!std::ranges::is_sorted(m.identifiers)) return fail(Error::invalid, "the identifiers asked for are not ascending");
  return {};
}

void fields(auto& way, Is<SiftTracks> auto& m) {
  way.begins("request for tracks");
  tracks(way, m);
}
Status check(const SiftTracks& m) { return check_tracks(m); }

void fields(auto& way, Is<PeerTracks> auto& m) {
  way.begins("request of a member for tracks");
  way(m.user, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  tracks(way, m);
}
Status check(const PeerTracks& m) { return check_tracks(m); }

void fields(auto& way, Is<SiftInfo> auto& m) {
  way.begins("question about a sift pool");
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

void fields(auto& way, Is<GaugesOpen> auto& m) {
  way.begins("opening of gauges");
  object_at(way, m.memory);
  way.text(m.name, name_bytes_max, "the gauges' name");
  way.bytes(m.schema);
}

void fields(auto& way, Is<GaugesClose> auto& m) {
  way.begins("end of gauges");
  way(m.number);
}

void fields(auto& way, Is<PeerDefine> auto& m) {
  way.begins("definition of a member");
  way(m.user);
  way.text(m.pool, pool_bytes_max, "the pool's name");
}

void fields(auto& way, Is<ExchangeOpen> auto& m) {
  way.begins("opening of an exchange");
  way.text(m.name, name_bytes_max, "the exchange's name");
  way(m.publishes, m.record_bytes, m.view_bytes);
  object_at(way, m.area);
  way.bytes(m.fields);
}

void fields(auto& way, Is<ExchangeInfo> auto& m) {
  way.begins("question about an exchange");
  way(m.number);
  object_at(way, m.room);
}

void fields(auto& way, Is<ExchangeWait> auto& m) {
  way.begins("wait for a view");
  way(m.number, m.after, m.wait_ns);
}

void fields(auto& way, Is<ExchangeGrant> auto& m) {
  way.begins("grants");
  way(m.number);
  way.each(m.wishes, [&way](auto& wish) { way(wish.member, wish.zero, wish.amount); });
}
Status check(const ExchangeGrant& m) {
  if (m.wishes.size() > exchange_wishes_max)
    return fail(Error::too_large, "grants: {} of them, at most {} are allowed at a time", m.wishes.size(), exchange_wishes_max);
  return {};
}

void fields(auto& way, Is<ExchangeClose> auto& m) {
  way.begins("end of an exchange");
  way(m.number);
}

void fields(auto& way, Is<PeerExchange> auto& m) {
  way.begins("parcel of a member");
  way(m.tag, m.parcel, m.total_bytes, m.offset);
  object_at(way, m.part);
  way.bytes(m.bytes);
}
Status check(const PeerExchange& m) {
  const std::uint64_t length = m.bytes.empty() ? m.part.length : m.bytes.size();
  std::uint64_t end = 0;
  if (length == 0 || length > exchange_part_max || m.bytes.size() > exchange_enclosed_max || !checked_add(m.offset, length, end) || end > m.total_bytes)
    return fail(Error::protocol, "parcel of a member: {} bytes from {} on, of {}", length, m.offset, m.total_bytes);
  return {};
}

void fields(auto& way, Is<TaskOpen> auto& m) {
  way.begins("opening of a session of tasks");
  way(m.lane, m.lanes);
  object_at(way, m.lines);
  way.each(m.plugins, [&way](auto& plugin) {
    way.text(plugin.name, name_bytes_max, "a plug-in's name");
    way.text(plugin.path, task_path_bytes_max, "a plug-in's path");
  });
  way.text(m.team, name_bytes_max, "the team's name");
}
Status check(const TaskOpen& m) {
  if (m.lanes > task_lanes_max || (m.lane != task_any_lane && m.lane >= m.lanes))
    return fail(Error::invalid, "tasks: lane {} of {}", m.lane, m.lanes);
  if (!m.team.empty() && (m.lane == task_any_lane || m.lanes == 0))
    return fail(Error::invalid, "tasks: the session names team \"{}\" and no lane of it: lane and lanes say which it is", brief(m.team));
  if (m.plugins.size() > task_plugins_max) return fail(Error::too_large, "tasks: {} plug-ins, at most {}", m.plugins.size(), task_plugins_max);
  for (const TaskPlugin& plugin : m.plugins)
    if (plugin.name.empty() || !plugin.path.starts_with('/')) return fail(Error::invalid, "tasks: plug-in \"{}\" at \"{}\": a name and an absolute path", plugin.name, plugin.path);
  if (!is_segment(m.lines.region) || m.lines.length == 0 || m.lines.length % task_line_bytes != 0 || m.lines.length / task_line_bytes > task_lines_max ||
      m.lines.offset % task_line_bytes != 0)
    return fail(Error::protocol, "tasks: lines of {} bytes from {} on, in region {:#x}", m.lines.length, m.lines.offset, m.lines.region);
  return {};
}

void fields(auto& way, Is<TaskRun> auto& m) {
  way.begins("task");
  way(m.session, m.line, m.wait_ns);
  way.text(m.plugin, name_bytes_max, "the plug-in's name");
  way.text(m.function, name_bytes_max, "the function's name");
  way.each(m.after, [&way](auto& ticket) { way(ticket); });
  way.each(m.inputs, [&way](auto& input) {
    object_at(way, input.source);
    way(input.bytes, input.version, input.changed_from, input.changed_at, input.changed_bytes);
    way.text(input.name, name_bytes_max, "an input's name");
  });
  way.each(m.outputs, [&way](auto& output) {
    object_at(way, output.target);
    way(output.bytes, output.version);
    way.text(output.name, name_bytes_max, "an output's name");
  });
  way.bytes(m.arguments);
}
Status check(const TaskRun& m) {
  if (m.inputs.size() > task_inputs_max || m.outputs.size() > task_outputs_max || m.after.size() > task_after_max)
    return fail(Error::too_large, "a task of {} inputs and {} outputs, after {} others: at most {}, {} and {} are allowed", m.inputs.size(),
                m.outputs.size(), m.after.size(), task_inputs_max, task_outputs_max, task_after_max);
  for (const TaskInput& input : m.inputs) {
    std::uint64_t end = 0;
    if (input.source.length != 0 && input.source.length != input.bytes)
      return fail(Error::protocol, "input \"{}\" has {} bytes, its memory {}", input.name, input.bytes, input.source.length);
    if (input.bytes > region_bytes_max || !checked_add(input.changed_at, input.changed_bytes, end) || end > input.bytes)
      return fail(Error::invalid, "input \"{}\": {} bytes from {} on have changed, of {}", input.name, input.changed_bytes, input.changed_at, input.bytes);
    if (input.version == 0 && input.changed_from != 0) return fail(Error::invalid, "input \"{}\" has changed, and has no version", input.name);
    if (input.source.length == 0 && input.bytes != 0 && input.version == 0) return fail(Error::invalid, "input \"{}\" has neither memory nor a version", input.name);
  }
  for (const TaskOutput& output : m.outputs) {
    if (output.target.length != 0 && (output.target.length != output.bytes || !is_segment(output.target.region)))
      return fail(Error::denied, "output \"{}\" of {} bytes goes to {} bytes of region {:#x}", output.name, output.bytes, output.target.length, output.target.region);
    if (output.bytes > region_bytes_max) return fail(Error::too_large, "output \"{}\" of {} bytes", output.name, output.bytes);
  }
  return {};
}

void fields(auto& way, Is<TaskWait> auto& m) {
  way.begins("wait for a task");
  way(m.ticket);
}

void fields(auto& way, Is<TaskCancel> auto& m) {
  way.begins("end of a task");
  way(m.ticket);
}

void fields(auto& way, Is<TaskClose> auto& m) {
  way.begins("end of a session of tasks");
  way(m.session);
}

void fields(auto& way, Is<TaskDone> auto& m) {
  way.begins("outcome of a task");
  way(m.worker, m.pulled_ns, m.queued_ns, m.ran_ns, m.pushed_ns, m.pulled_bytes);
  way.each(m.output_bytes, [&way](auto& bytes) { way(bytes); });
}

void fields(auto& way, Is<LaneTable> auto& m) {
  way.begins("table of lanes");
  way.each(m.entries, [&way](auto& entry) {
    way(entry.user, entry.session, entry.lane, entry.lanes);
    way.text(entry.team, name_bytes_max, "a team's name");
  });
}
Status check(const LaneTable& m) {
  if (m.entries.size() > lane_table_max) return fail(Error::too_large, "a table of {} lanes, at most {}", m.entries.size(), lane_table_max);
  for (const LaneEntry& entry : m.entries)
    if (entry.team.empty() || entry.lane >= entry.lanes || entry.lanes > task_lanes_max)
      return fail(Error::protocol, "a table has lane {} of {} of team \"{}\"", entry.lane, entry.lanes, brief(entry.team));
  return {};
}

void fields(auto& way, Is<PeerLanes> auto& m) {
  way.begins("lanes of a member");
  way(m.process, m.version);
  object_at(way, m.table);
  way.text(m.sender, name_bytes_max, "the sender");
}
Status check(const PeerLanes& m) {
  if (m.table.length > lane_table_bytes_max) return fail(Error::too_large, "a table of lanes of {} bytes, at most {}", m.table.length, lane_table_bytes_max);
  return {};
}

void fields(auto& way, Is<PeerReceive> auto& m) {
  way.begins("receive of a member");
  way(m.user, m.session, m.number, m.room, m.got, m.lanes, m.from, m.to, m.tag);
  way.text(m.reader, name_bytes_max, "the reader");
  way.text(m.team, name_bytes_max, "the team's name");
}
Status check(const PeerReceive& m) {
  if (m.from >= m.lanes || m.to >= m.lanes) return fail(Error::protocol, "receive of a member: from lane {} to {} of {}", m.from, m.to, m.lanes);
  return {};
}

void fields(auto& way, Is<PeerMessage> auto& m) {
  way.begins("message of a member");
  way(m.number, m.message, m.length, m.offer);
  object_at(way, m.object);
  way.bytes(m.bytes);
}
Status check(const PeerMessage& m) {
  const bool lies_there = m.offer != 0 || m.object.length == m.length;
  if (m.length > message_bytes_max || m.bytes.size() > message_enclosed_max || (m.bytes.empty() ? !lies_there : m.bytes.size() != m.length))
    return fail(Error::protocol, "message of a member: {} bytes, {} of them enclosed, {} where they lie", m.length, m.bytes.size(), m.object.length);
  return {};
}

void fields(auto& way, Is<TcpOpen> auto& m) {
  way.begins("opening of TCP connections");
  object_at(way, m.memory);
  way(m.version, m.wish_slots, m.news_slots, m.flows);
}

void fields(auto& way, Is<TcpClose> auto& m) {
  way.begins("end of TCP connections");
  way(m.version);
}

void fields(auto& way, Is<PostTable> auto& m) {
  way.begins("table post");
  way(m.table.region, m.table.generation, m.table.offset, m.table.length);
}
Status check(const PostTable& m) {
  if (m.table.length > member_table_bytes_max)
    return fail(Error::too_large, "a table of members of {} bytes, at most {} are allowed", m.table.length,
                member_table_bytes_max);
  return {};
}

void fields(auto& way, Is<MemberTable> auto& m) {
  way.begins("table of members");
  way.text(m.sender, name_bytes_max, "the sender's name");
  way.each(m.entries, [&way](auto& entry) {
    way.choice(entry.state, MemberEntry::State::dead, "state");
    way(entry.incarnation, entry.process, entry.beats);
    way.text(entry.name, name_bytes_max, "a member's name");
    way.text(entry.address, name_bytes_max, "a member's address");
    way.text(entry.http, name_bytes_max, "a member's HTTP address");
  });
}
Status check(const MemberTable& m) {
  if (m.entries.size() > members_max)
    return fail(Error::too_large, "a table of {} members, at most {} are allowed", m.entries.size(), members_max);
  for (const MemberEntry& entry : m.entries)
    if (entry.name.empty()) return fail(Error::protocol, "table of members: one has no name");
  return {};
}

// ---- replies

void fields(auto& way, Is<Failed> auto& m) {
  way.begins("failure");
  way(m.stream);
  way.error(m.code);
  way.cut(m.message, 480);
}

void fields(auto& way, Is<Opened> auto& m) {
  way.begins("opened");
  way(m.stream, m.charge_base);
}

void fields(auto& way, Is<Probed> auto& m) {
  way.begins("probed");
  way(m.seen_ns);
}

void fields(auto& way, Is<Got> auto& m) {
  way.begins("got");
  way.choice(m.how, Got::How::enclosed, "way");
  way(m.arrow, m.lease, m.length, m.rows);
  way.bytes(m.bytes);
}
Status check(const Got& m) {
  const std::uint64_t wanted = m.how == Got::How::enclosed ? m.length : 0;
  if (m.bytes.size() != wanted || wanted > enclosed_bytes_max)
    return fail(Error::protocol, "got: {} bytes enclosed of an object of {}, which comes in way {}", m.bytes.size(), m.length,
                static_cast<int>(m.how));
  return {};
}

void fields(auto& way, Is<Listed> auto& m) {
  way.begins("listed");
  way(m.more);
  way.each(m.entries, [&way](auto& entry) { way(entry.sequence, entry.bytes, entry.rows, entry.row_key, entry.column_key); });
}

void fields(auto& way, Is<Done> auto& m) {
  way.begins("done");
  way(m.value);
}

}  // namespace

std::string_view destination_name(Destination destination) noexcept {
  return destination_names[static_cast<std::size_t>(destination)];
}

Result<Destination> parse_destination(std::string_view name) {
  for (std::size_t i = 0; i < destination_names.size(); ++i)
    if (destination_names[i] == name) return static_cast<Destination>(i);
  return fail(Error::invalid, "destination \"{}\" is unknown; there are {}", name, fmt::join(destination_names, ", "));
}

std::string_view compression_name(Compression compression) noexcept {
  return compression_names[static_cast<std::size_t>(compression)];
}

Result<Compression> parse_compression(std::string_view name) {
  for (std::size_t i = 0; i < compression_names.size(); ++i)
    if (compression_names[i] == name) return static_cast<Compression>(i);
  return fail(Error::invalid, "compression \"{}\" is unknown; there are {}", name, fmt::join(compression_names, ", "));
}

#define X(Message)                                                 \
  void encode(const Message& message, std::vector<std::byte>& to) { \
    FieldWriter way(to);                                            \
    fields(way, message);                                           \
  }                                                                 \
  Status decode(Bytes payload, Message& message) {                  \
    FieldReader way(payload);                                       \
    fields(way, message);                                           \
    OFP_TRY(way.finish());                                          \
    return check(message);                                          \
  }
OFFPATH_MESSAGES(X)
#undef X

}  // namespace offpath::wire
