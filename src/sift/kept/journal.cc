#include "sift/kept/journal.h"

#include <array>
#include <charconv>
#include <cstring>

#include "wire/cursor.h"

namespace offpath::sift {

namespace {

constexpr std::uint32_t magic = 0x4B53464F;  // "OFSK"
constexpr std::uint16_t version = 1;
constexpr std::uint64_t tail_bytes = 16;
// In front of the notes of a run with blocks, and of one whose identifiers are long; no run has so many rows.
constexpr std::uint64_t blocks_mark = UINT64_MAX, long_blocks_mark = UINT64_MAX - 1;
constexpr std::size_t checked_from = sizeof blocks_mark + sizeof(std::uint32_t);
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

std::string piece_name(ElementId element, const PieceKey& key) {
  return KeptName{KeptName::Kind::piece, element, key, 0}.text();
}

std::string split_name(ElementId element, std::uint64_t number) {
  return KeptName{KeptName::Kind::split, element, {}, number}.text();
}

std::string run_name(ElementId element, std::uint64_t number) {
  return KeptName{KeptName::Kind::run, element, {}, number}.text();
}

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
  if (!notes.blocks.empty()) {
    writer.put(notes.firsts.empty() ? blocks_mark : long_blocks_mark);
    writer.put(std::uint32_t{0});  // the checksum of what follows
    writer.put(static_cast<std::uint32_t>(notes.blocks.size()));
    for (const RunBlock& block : notes.blocks) {
      writer.put(block.rows);
      writer.put(block.keys);
      writer.put(block.first_key);
      writer.put(block.last_key);
      writer.put(block.crc32c);
      if (!notes.firsts.empty()) writer.put(block.bytes);
    }
    for (const std::string& first : notes.firsts) {
      writer.put(static_cast<std::uint32_t>(first.size()));
      writer.put_bytes(bytes_of(first));
    }
  }
  writer.put(notes.rows);
  writer.put(notes.keys);
  writer.put(static_cast<std::uint32_t>(notes.record.size()));
  writer.put_bytes(notes.record);
  writer.put_bytes(notes.schema);
  if (!notes.blocks.empty()) store(bytes.data() + sizeof blocks_mark, crc32c(Bytes(bytes).subspan(checked_from)));
  return bytes;
}

Result<RunNotes> decode_run_notes(Bytes bytes) {
  wire::Reader reader(bytes);
  RunNotes notes;
  const std::uint64_t mark = bytes.size() > checked_from ? load<std::uint64_t>(bytes.data()) : 0;
  if (mark == blocks_mark || mark == long_blocks_mark) {
    const bool is_long = mark == long_blocks_mark;
    (void)reader.take<std::uint64_t>();
    const std::uint32_t sum = crc32c(bytes.subspan(checked_from));
    if (const auto noted = reader.take<std::uint32_t>(); noted != sum)
      return fail(Error::protocol, "the notes of a run of tracks have checksum {:08x}, {:08x} was written", sum, noted);
    OFP_ASSIGN(const std::uint32_t blocks, take_count(reader, is_long ? 48 : 36, "blocks"));
    if (is_long && blocks == 0) return fail(Error::protocol, "the notes of a run of tracks have no block");
    for (std::uint32_t i = 0; i < blocks; ++i) {
      RunBlock block;
      block.rows = reader.take<std::uint64_t>();
      block.keys = reader.take<std::uint64_t>();
      block.first_key = reader.take<std::uint64_t>();
      block.last_key = reader.take<std::uint64_t>();
      block.crc32c = reader.take<std::uint32_t>();
      if (is_long) block.bytes = reader.take<std::uint64_t>();
      notes.blocks.push_back(block);
    }
    for (std::uint32_t i = 0; i < blocks && is_long; ++i) {
      const auto length = reader.take<std::uint32_t>();
      if (!reader.ok() || length > long_key_bytes_max || length > reader.left())
        return fail(Error::protocol, "the first identifier of block {} of a run has {} bytes", i, length);
      notes.firsts.emplace_back(text_of(reader.take_bytes(length)));
    }
  }
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

Result<std::vector<std::byte>> read_kept_notes(const service::Frame& object) {
  if (!object.unread) {
    OFP_ASSIGN(const KeptParts parts, open_kept({object.buffer.data(), object.bytes}));
    return std::vector<std::byte>(parts.notes.begin(), parts.notes.end());
  }
  if (object.bytes < tail_bytes)
    return fail(Error::protocol, "{} bytes, a kept object of a sift pool has more", object.bytes);
  std::array<std::byte, tail_bytes> tail;
  const std::uint64_t before = object.bytes - tail_bytes;
  OFP_TRY(object.unread->read_part(before, tail));
  const auto body = load<std::uint64_t>(tail.data());
  const auto bytes = load<std::uint32_t>(tail.data() + 8);
  if (load<std::uint32_t>(tail.data() + 12) != magic || body > before || align_up(body, 8) + bytes != before)
    return fail(Error::protocol, "{} bytes that are not a kept object of a sift pool", object.bytes);
  std::vector<std::byte> notes(bytes);
  OFP_TRY(object.unread->read_part(before - bytes, notes));
  return notes;
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
