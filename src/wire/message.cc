#include "wire/message.h"

#include <array>

#include "wire/cursor.h"

namespace offpath::wire {

namespace {

constexpr std::array<std::string_view, destinations> destination_names = {
    "native", "arrays", "record-batch", "ipc", "ipc-page", "c-abi", "agent-serialise", "serialised"};

Status finish(const Reader& reader, std::string_view what) {
  if (!reader.done()) return fail(Error::protocol, "{}: the payload has the wrong length", what);
  return {};
}

Status check_text(std::string_view what, std::string_view text, std::size_t bytes_max) {
  if (text.size() > bytes_max)
    return fail(Error::too_large, "{} has {} bytes, at most {} are allowed", what, text.size(), bytes_max);
  return {};
}

template <class T>
void put_array(Writer& writer, const std::vector<T>& values) {
  writer.put(static_cast<std::uint32_t>(values.size()));
  writer.put_bytes(std::as_bytes(std::span(values)));
}

template <class T>
void take_array(Reader& reader, std::vector<T>& values) {
  const auto count = reader.take<std::uint32_t>();
  values.clear();
  if (count > entry_bytes_max / sizeof(T)) {
    reader.take_bytes(~0ull);  // marks the reader failed
    return;
  }
  const Bytes bytes = reader.take_bytes(count * sizeof(T));
  if (bytes.empty()) return;
  values.resize(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
}

}  // namespace

std::string_view destination_name(Destination destination) noexcept {
  return destination_names[static_cast<std::size_t>(destination)];
}

Result<Destination> parse_destination(std::string_view name) {
  for (std::size_t i = 0; i < destination_names.size(); ++i)
    if (destination_names[i] == name) return static_cast<Destination>(i);
  return fail(Error::invalid, "destination \"{}\" is unknown; there are native, arrays, record-batch, ipc, ipc-page, c-abi, agent-serialise, serialised",
              name);
}

// ---- requests

void encode(const AnnounceRange& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.range);
  w.put(m.generation);
  w.put(m.base);
  w.put(m.length);
  w.put(m.key);
}

Status decode(Bytes payload, AnnounceRange& m) {
  Reader r(payload);
  m = {r.take<std::uint32_t>(), r.take<std::uint32_t>(), r.take<std::uint64_t>(), r.take<std::uint64_t>(), r.take<std::uint32_t>()};
  OFP_TRY(finish(r, "announcement"));
  if (is_segment(m.range)) return fail(Error::protocol, "announcement: {:#x} is a segment's number", m.range);
  return {};
}

void encode(const RetireRange& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.range);
  w.put(m.generation);
}

Status decode(Bytes payload, RetireRange& m) {
  Reader r(payload);
  m = {r.take<std::uint32_t>(), r.take<std::uint32_t>()};
  return finish(r, "withdrawal");
}

void encode(const OpenStream& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(m.destination);
  w.put(m.rows_max);
  w.put(m.keep);
  w.put(m.ranks);
  w.put(m.rank);
  w.put_text(m.name);
  w.put_text(m.pool);
  w.put(static_cast<std::uint32_t>(m.schema.size()));
  w.put_bytes(m.schema);
}

Status decode(Bytes payload, OpenStream& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  const auto destination = r.take<std::uint8_t>();
  m.rows_max = r.take<std::uint64_t>();
  m.keep = r.take<std::uint64_t>();
  m.ranks = r.take<std::uint32_t>();
  m.rank = r.take<std::uint32_t>();
  m.name = r.take_text();
  m.pool = r.take_text();
  m.schema = r.take_bytes(r.take<std::uint32_t>());
  OFP_TRY(finish(r, "stream opening"));
  if (destination >= destinations) return fail(Error::protocol, "stream opening: destination number {}", destination);
  m.destination = static_cast<Destination>(destination);
  OFP_TRY(check_text("the stream's name", m.name, name_bytes_max));
  return check_text("the pool's name", m.pool, name_bytes_max);
}

void encode(const CloseStream& m, std::vector<std::byte>& to) { Writer(to).put(m.stream); }

Status decode(Bytes payload, CloseStream& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  return finish(r, "stream closing");
}

// 0 stream u32 | 4 row key u8 | 5 column key u8 | 6 nodes u16 | 8 buffers u32 | 12 set u32 | 16 charge u64 |
// 24 rows u64 | 32 keys, then buffers, then nodes
void encode(const Send& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(static_cast<std::uint8_t>(m.row_key.size()));
  w.put(static_cast<std::uint8_t>(m.column_key.size()));
  w.put(static_cast<std::uint16_t>(m.nodes.size()));
  w.put(static_cast<std::uint32_t>(m.buffers.size()));
  w.put(m.set);
  w.put(m.charge);
  w.put(m.rows);
  w.put_bytes(bytes_of(m.row_key));
  w.put_bytes(bytes_of(m.column_key));
  w.put_bytes(std::as_bytes(std::span(m.buffers)));
  w.put_bytes(std::as_bytes(std::span(m.nodes)));
}

Status decode(Bytes payload, Send& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  const auto row_key = r.take<std::uint8_t>();
  const auto column_key = r.take<std::uint8_t>();
  const auto nodes = r.take<std::uint16_t>();
  const auto buffers = r.take<std::uint32_t>();
  m.set = r.take<std::uint32_t>();
  m.charge = r.take<std::uint64_t>();
  m.rows = r.take<std::uint64_t>();
  m.row_key = text_of(r.take_bytes(row_key));
  m.column_key = text_of(r.take_bytes(column_key));
  if (buffers > buffers_max) return fail(Error::too_large, "a send of {} buffers, at most {} are allowed", buffers, buffers_max);
  const Bytes refs = r.take_bytes(buffers * sizeof(BufferRef));
  const Bytes node_bytes = r.take_bytes(nodes * sizeof(Node));
  OFP_TRY(finish(r, "send"));
  if (m.set > sets_max) return fail(Error::invalid, "a send names set {} of buffers, the last is {}", m.set, sets_max);
  if (m.set != 0 && nodes != 0) return fail(Error::invalid, "a send with nodes names set {} of buffers", m.set);
  if (m.set != 0 && buffers > set_buffers_max)
    return fail(Error::too_large, "set {} is to have {} buffers, at most {} are allowed", m.set, buffers, set_buffers_max);
  m.buffers.resize(buffers);
  if (!refs.empty()) std::memcpy(m.buffers.data(), refs.data(), refs.size());
  m.nodes.resize(nodes);
  if (!node_bytes.empty()) std::memcpy(m.nodes.data(), node_bytes.data(), node_bytes.size());
  return {};
}

void encode(const Move& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(static_cast<std::uint8_t>(m.update));
  w.put(m.charge);
  w.put(m.object_bytes);
  w.put_text(m.row_key);
  w.put_text(m.column_key);
  put_array(w, m.pieces);
}

Status decode(Bytes payload, Move& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  m.update = r.take<std::uint8_t>() != 0;
  m.charge = r.take<std::uint64_t>();
  m.object_bytes = r.take<std::uint64_t>();
  m.row_key = r.take_text();
  m.column_key = r.take_text();
  take_array(r, m.pieces);
  OFP_TRY(finish(r, "move"));
  OFP_TRY(check_text("the row key", m.row_key, key_bytes_max));
  return check_text("the column key", m.column_key, key_bytes_max);
}

void encode(const StepEnd& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put_text(m.row_key);
}

Status decode(Bytes payload, StepEnd& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  m.row_key = r.take_text();
  OFP_TRY(finish(r, "end of step"));
  return check_text("the row key", m.row_key, key_bytes_max);
}

void encode(const WakeAt& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(m.word);
  w.put(m.value);
}

Status decode(Bytes payload, WakeAt& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  const auto word = r.take<std::uint8_t>();
  m.value = r.take<std::uint64_t>();
  OFP_TRY(finish(r, "wake request"));
  if (word > static_cast<std::uint8_t>(WakeWord::now)) return fail(Error::protocol, "wake request: unknown word {}", word);
  m.word = static_cast<WakeWord>(word);
  return {};
}

void encode(const NeedCredit& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(m.total);
}

Status decode(Bytes payload, NeedCredit& m) {
  Reader r(payload);
  m = {r.take<std::uint32_t>(), r.take<std::uint64_t>()};
  return finish(r, "credit request");
}

void encode(const PoolGet& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put_text(m.pool);
  w.put_text(m.row_key);
  w.put_text(m.column_key);
  w.put(m.wait_ns);
  w.put(m.segment);
}

Status decode(Bytes payload, PoolGet& m) {
  Reader r(payload);
  m.pool = r.take_text();
  m.row_key = r.take_text();
  m.column_key = r.take_text();
  m.wait_ns = r.take<std::int64_t>();
  m.segment = r.take<std::uint32_t>();
  OFP_TRY(finish(r, "get"));
  OFP_TRY(check_text("the pool's name", m.pool, name_bytes_max));
  OFP_TRY(check_text("the row key", m.row_key, key_bytes_max));
  return check_text("the column key", m.column_key, key_bytes_max);
}

void encode(const PoolList& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put_text(m.pool);
  w.put_text(m.row_glob);
  w.put_text(m.column_glob);
  w.put(m.after);
}

Status decode(Bytes payload, PoolList& m) {
  Reader r(payload);
  m.pool = r.take_text();
  m.row_glob = r.take_text();
  m.column_glob = r.take_text();
  m.after = r.take<std::uint64_t>();
  OFP_TRY(finish(r, "list"));
  OFP_TRY(check_text("the row pattern", m.row_glob, key_bytes_max));
  return check_text("the column pattern", m.column_glob, key_bytes_max);
}

void encode(const PoolDrop& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put_text(m.pool);
  w.put_text(m.row_glob);
  w.put_text(m.column_glob);
}

Status decode(Bytes payload, PoolDrop& m) {
  Reader r(payload);
  m.pool = r.take_text();
  m.row_glob = r.take_text();
  m.column_glob = r.take_text();
  OFP_TRY(finish(r, "drop"));
  OFP_TRY(check_text("the row pattern", m.row_glob, key_bytes_max));
  return check_text("the column pattern", m.column_glob, key_bytes_max);
}

void encode(const PoolWrite& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put_text(m.pool);
  w.put(m.offer);
}

Status decode(Bytes payload, PoolWrite& m) {
  Reader r(payload);
  m.pool = r.take_text();
  m.offer = r.take<std::uint64_t>();
  return finish(r, "write");
}

void encode(const Release& m, std::vector<std::byte>& to) { Writer(to).put(m.lease); }

Status decode(Bytes payload, Release& m) {
  Reader r(payload);
  m.lease = r.take<std::uint64_t>();
  return finish(r, "release");
}

// ---- replies

void encode(const Failed& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(static_cast<std::int32_t>(m.code));
  w.put_text(m.message.substr(0, 480));
}

Status decode(Bytes payload, Failed& m) {
  Reader r(payload);
  m.stream = r.take<std::uint32_t>();
  const auto code = r.take<std::int32_t>();
  m.code = error_name(static_cast<Error>(code)) == "unknown" ? Error::protocol : static_cast<Error>(code);
  m.message = r.take_text();
  return finish(r, "failure");
}

void encode(const Opened& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.stream);
  w.put(m.charge_base);
}

Status decode(Bytes payload, Opened& m) {
  Reader r(payload);
  m = {r.take<std::uint32_t>(), r.take<std::uint64_t>()};
  return finish(r, "opened");
}

void encode(const Probed& m, std::vector<std::byte>& to) { Writer(to).put(m.seen_ns); }

Status decode(Bytes payload, Probed& m) {
  Reader r(payload);
  m.seen_ns = r.take<std::int64_t>();
  return finish(r, "probed");
}

void encode(const Got& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(m.how);
  w.put(static_cast<std::uint8_t>(m.arrow));
  w.put(m.lease);
  w.put(m.length);
  w.put(m.rows);
}

Status decode(Bytes payload, Got& m) {
  Reader r(payload);
  const auto how = r.take<std::uint8_t>();
  m.arrow = r.take<std::uint8_t>() != 0;
  m.lease = r.take<std::uint64_t>();
  m.length = r.take<std::uint64_t>();
  m.rows = r.take<std::uint64_t>();
  OFP_TRY(finish(r, "got"));
  if (how > 2) return fail(Error::protocol, "got: unknown way {}", how);
  m.how = static_cast<Got::How>(how);
  return {};
}

void encode(const Listed& m, std::vector<std::byte>& to) {
  Writer w(to);
  w.put(static_cast<std::uint8_t>(m.more));
  w.put(static_cast<std::uint32_t>(m.entries.size()));
  for (const ListedEntry& entry : m.entries) {
    w.put(entry.sequence);
    w.put(entry.bytes);
    w.put(entry.rows);
    w.put_text(entry.row_key);
    w.put_text(entry.column_key);
  }
}

Status decode(Bytes payload, Listed& m) {
  Reader r(payload);
  m.more = r.take<std::uint8_t>() != 0;
  const auto count = r.take<std::uint32_t>();
  m.entries.clear();
  for (std::uint32_t i = 0; i < count && r.ok(); ++i) {
    ListedEntry entry{};
    entry.sequence = r.take<std::uint64_t>();
    entry.bytes = r.take<std::uint64_t>();
    entry.rows = r.take<std::uint64_t>();
    entry.row_key = r.take_text();
    entry.column_key = r.take_text();
    if (r.ok()) m.entries.push_back(entry);
  }
  return finish(r, "listed");
}

void encode(const Done& m, std::vector<std::byte>& to) { Writer(to).put(m.value); }

Status decode(Bytes payload, Done& m) {
  Reader r(payload);
  m.value = r.take<std::uint64_t>();
  return finish(r, "done");
}

}  // namespace offpath::wire
