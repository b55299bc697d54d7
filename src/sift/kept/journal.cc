#include "sift/kept/journal.h"

#include <charconv>
#include <cstring>

#include "wire/cursor.h"

namespace offpath::sift {

namespace {

constexpr std::uint32_t magic = 0x4B53464F;  // "OFSK"
constexpr std::uint16_t version = 1;
constexpr std::uint64_t tail_bytes = 16;
constexpr std::string_view kinds[] = {"piece", "split", "run"};

std::optional<std::uint64_t> take_number(std::string_view& text) {
  if (text.empty() || text[0] != '.') return std::nullopt;
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 1, end, number, 16);
  if (error != std::errc()) return std::nullopt;
  text = {rest, static_cast<std::size_t>(end - rest)};
  return number;
}

void put(wire::Writer& writer, const TakenSequences& sequences) {
  writer.put(sequences.all_up_to());
  writer.put(static_cast<std::uint32_t>(sequences.later().size()));
  for (const auto& [first, last] : sequences.later()) {
    writer.put(first);
    writer.put(last);
  }
}

// The number of following entries, each of at least `bytes_each` bytes.
Result<std::uint32_t> take_count(wire::Reader& reader, std::uint64_t bytes_each, std::string_view what) {
  const auto count = reader.take<std::uint32_t>();
  if (!reader.ok() || count > reader.left() / bytes_each)
    return fail(Error::protocol, "a record of an element ends before its {} {}", count, what);
  return count;
}

Result<TakenSequences> take_sequences(wire::Reader& reader) {
  TakenSequences sequences;
  sequences.take_below(reader.take<std::uint64_t>() + 1);
  OFP_ASSIGN(const std::uint32_t intervals, take_count(reader, 16, "intervals"));
  std::uint64_t before = sequences.all_up_to();
  for (std::uint32_t i = 0; i < intervals; ++i) {
    const auto first = reader.take<std::uint64_t>(), last = reader.take<std::uint64_t>();
    if (first <= before || first - before < 2 || last < first)
      return fail(Error::protocol, "a record of an element has sequences {} to {} after {}", first, last, before);
    sequences.take(first, last);
    before = last;
  }
  return sequences;
}

Result<ElementRecord::Source> take_source(wire::Reader& reader) {
  ElementRecord::Source source;
  source.source = reader.take<std::uint32_t>();
  OFP_ASSIGN(const std::uint32_t lives, take_count(reader, 20, "lives"));
  for (std::uint32_t i = 0; i < lives; ++i) {
    ElementRecord::Life life{reader.take<std::uint64_t>(), {}};
    OFP_ASSIGN(life.settled, take_sequences(reader));
    source.lives.push_back(std::move(life));
  }
  OFP_ASSIGN(const std::uint32_t forgotten, take_count(reader, 8, "former lives"));
  for (std::uint32_t i = 0; i < forgotten; ++i) source.forgotten.push_back(reader.take<std::uint64_t>());
  return source;
}

Result<ElementRecord::Split> take_split(wire::Reader& reader) {
  ElementRecord::Split split;
  split.number = reader.take<std::uint64_t>();
  OFP_ASSIGN(const std::uint32_t pieces, take_count(reader, 20, "pieces"));
  for (std::uint32_t i = 0; i < pieces; ++i) {
    PieceKey key;
    key.source = reader.take<std::uint32_t>();
    key.incarnation = reader.take<std::uint64_t>();
    key.sequence = reader.take<std::uint64_t>();
    split.pieces.push_back(key);
  }
  OFP_ASSIGN(const std::uint32_t parts, take_count(reader, 12, "parts"));
  for (std::uint32_t i = 0; i < parts; ++i) {
    const auto number = reader.take<std::uint32_t>();
    split.parts.emplace_back(number, reader.take<std::uint64_t>());
  }
  return split;
}

}  // namespace

std::string KeptName::text() const {
  const std::string_view name = kinds[static_cast<std::size_t>(kind)];
  if (kind != Kind::piece) return fmt::format("{}.{:x}.{:x}.{:x}", name, element.stage, element.index, number);
  return fmt::format("{}.{:x}.{:x}.{:x}.{:x}.{:x}", name, element.stage, element.index, piece.source, piece.incarnation,
                     piece.sequence);
}

std::optional<KeptName> KeptName::parse(std::string_view text) {
  KeptName name;
  const std::string_view word = text.substr(0, text.find('.'));
  text.remove_prefix(word.size());
  std::size_t kind = 0;
  while (kind < std::size(kinds) && kinds[kind] != word) ++kind;
  if (kind == std::size(kinds)) return std::nullopt;
  name.kind = static_cast<Kind>(kind);
  const auto stage = take_number(text), index = take_number(text);
  if (!stage || !index || *stage < 1 || *stage > matched_bits_max + 1 || *index >= 1u << matched_bits_max)
    return std::nullopt;
  name.element = {static_cast<std::uint32_t>(*stage), static_cast<std::uint32_t>(*index)};
  if (name.kind == Kind::piece) {
    const auto source = take_number(text), incarnation = take_number(text), sequence = take_number(text);
    if (!source || !incarnation || !sequence || *source > UINT32_MAX || *sequence == 0) return std::nullopt;
    name.piece = {static_cast<std::uint32_t>(*source), *incarnation, *sequence};
  } else {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    name.number = *number;
  }
  if (!text.empty()) return std::nullopt;
  return name;
}

// ---- records

std::vector<std::byte> encode(const ElementRecord& record) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(version);
  writer.put(record.number);
  writer.put(static_cast<std::uint32_t>(record.sources.size()));
  for (const ElementRecord::Source& source : record.sources) {
    writer.put(source.source);
    writer.put(static_cast<std::uint32_t>(source.lives.size()));
    for (const ElementRecord::Life& life : source.lives) {
      writer.put(life.incarnation);
      put(writer, life.settled);
    }
    writer.put(static_cast<std::uint32_t>(source.forgotten.size()));
    for (const std::uint64_t incarnation : source.forgotten) writer.put(incarnation);
  }
  writer.put(static_cast<std::uint32_t>(record.next_sequences.size()));
  for (const std::uint64_t next : record.next_sequences) writer.put(next);
  writer.put(static_cast<std::uint32_t>(record.open.size()));
  for (const ElementRecord::Split& split : record.open) {
    writer.put(split.number);
    writer.put(static_cast<std::uint32_t>(split.pieces.size()));
    for (const PieceKey& piece : split.pieces) {
      writer.put(piece.source);
      writer.put(piece.incarnation);
      writer.put(piece.sequence);
    }
    writer.put(static_cast<std::uint32_t>(split.parts.size()));
    for (const auto& [number, sequence] : split.parts) {
      writer.put(number);
      writer.put(sequence);
    }
  }
  put(writer, record.covers);
  return bytes;
}

Result<ElementRecord> decode_record(Bytes bytes) {
  wire::Reader reader(bytes);
  if (const auto found = reader.take<std::uint16_t>(); found != version)
    return fail(Error::version, "a record of an element has version {}, expected {}", found, version);
  ElementRecord record;
  record.number = reader.take<std::uint64_t>();
  OFP_ASSIGN(const std::uint32_t sources, take_count(reader, 12, "sources"));
  for (std::uint32_t i = 0; i < sources; ++i) {
    OFP_ASSIGN(ElementRecord::Source source, take_source(reader));
    record.sources.push_back(std::move(source));
  }
  OFP_ASSIGN(const std::uint32_t parts, take_count(reader, 8, "sequences"));
  for (std::uint32_t i = 0; i < parts; ++i) record.next_sequences.push_back(reader.take<std::uint64_t>());
  OFP_ASSIGN(const std::uint32_t splits, take_count(reader, 16, "splits"));
  for (std::uint32_t i = 0; i < splits; ++i) {
    OFP_ASSIGN(ElementRecord::Split split, take_split(reader));
    record.open.push_back(std::move(split));
  }
  OFP_ASSIGN(record.covers, take_sequences(reader));
  if (!reader.done()) return fail(Error::protocol, "a record of an element, of {} bytes, is malformed", bytes.size());
  return record;
}

std::vector<std::byte> encode(const RunNotes& notes) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(notes.rows);
  writer.put(notes.keys);
  writer.put(static_cast<std::uint32_t>(notes.record.size()));
  writer.put_bytes(notes.record);
  writer.put_bytes(notes.schema);
  return bytes;
}

Result<RunNotes> decode_run_notes(Bytes bytes) {
  wire::Reader reader(bytes);
  RunNotes notes;
  notes.rows = reader.take<std::uint64_t>();
  notes.keys = reader.take<std::uint64_t>();
  const Bytes record = reader.take_bytes(reader.take<std::uint32_t>());
  const Bytes schema = reader.take_bytes(reader.left());
  if (!reader.done())
    return fail(Error::protocol, "the notes of a run of tracks, of {} bytes, are cut off", bytes.size());
  notes.record.assign(record.begin(), record.end());
  notes.schema.assign(schema.begin(), schema.end());
  return notes;
}

// ---- objects

std::uint64_t kept_bytes(std::uint64_t body_bytes, std::uint64_t notes_bytes) noexcept {
  return align_up(body_bytes, 8) + notes_bytes + tail_bytes;
}

void write_notes(MutableBytes object, std::uint64_t body_bytes, Bytes notes) noexcept {
  OFP_ASSERT(object.size() == kept_bytes(body_bytes, notes.size()));
  const std::uint64_t at = align_up(body_bytes, 8);
  std::memset(object.data() + body_bytes, 0, at - body_bytes);
  if (!notes.empty()) std::memcpy(object.data() + at, notes.data(), notes.size());
  std::byte* const tail = object.data() + at + notes.size();
  store(tail, body_bytes);
  store(tail + 8, static_cast<std::uint32_t>(notes.size()));
  store(tail + 12, magic);
}

Result<KeptParts> open_kept(Bytes object) {
  if (object.size() < tail_bytes)
    return fail(Error::protocol, "{} bytes, a kept object of a sift pool has more", object.size());
  const std::byte* const tail = object.data() + object.size() - tail_bytes;
  const auto body = load<std::uint64_t>(tail);
  const auto notes = load<std::uint32_t>(tail + 8);
  const std::uint64_t before = object.size() - tail_bytes;
  if (load<std::uint32_t>(tail + 12) != magic || body > before || align_up(body, 8) + notes != before)
    return fail(Error::protocol, "{} bytes that are not a kept object of a sift pool", object.size());
  return KeptParts{object.first(body), object.subspan(before - notes, notes)};
}

bool is_lost(Error code) noexcept {
  switch (code) {
    case Error::not_found:
    case Error::protocol:
    case Error::version:
    case Error::schema:
      return true;
    default:
      return false;
  }
}

Result<FramePtr> keep_piece(const FramePtr& frame, const PieceHeader& header, const FrameMemory& memory) {
  const std::vector<std::byte> notes = encode(header);
  const std::uint64_t bytes = kept_bytes(frame->bytes, notes.size());
  auto object = std::make_shared<service::Frame>();
  OFP_ASSIGN(object->buffer, memory.cache->take(bytes, memory.user));
  std::memcpy(object->buffer.data(), frame->buffer.data(), frame->bytes);
  write_notes(object->buffer.bytes(), frame->bytes, notes);
  object->bytes = bytes;
  object->rows = header.rows();
  return object;
}

}  // namespace offpath::sift
