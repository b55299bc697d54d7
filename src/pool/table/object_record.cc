#include "pool/table/object_record.h"

#include "frame/parse.h"
#include "wire/cursor.h"

namespace offpath::pool {

namespace {

constexpr std::string_view magic = "OFPOBJ1\n";
constexpr std::uint32_t arrow_flag = 1, version_flag = 2;

// The gap between the object's last byte and its record.
std::uint64_t gap_bytes(std::uint64_t bytes, bool arrow) noexcept {
  return align_up(bytes, 8) - bytes + (arrow ? frame::end_marker_bytes : 0);
}

template <class... Args>
tl::unexpected<Failure> bad(fmt::format_string<Args...> format, Args&&... args) {
  return fail(Error::protocol, "{}", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

std::vector<std::byte> encode_end(const ObjectRecord& record) {
  std::vector<std::byte> body;
  wire::Writer writer(body);
  for (const std::uint64_t number :
       {record.number, record.bytes, record.rows, record.keep, record.id.writer, record.id.number})
    writer.put(number);
  writer.put(std::uint32_t{record.pool_user});
  writer.put(std::uint32_t{record.user});
  writer.put(record.crc32c);
  writer.put((record.arrow ? arrow_flag : 0) | (record.id.counter != 0 ? version_flag : 0));
  for (const std::string* text : {&record.pool, &record.row, &record.column}) writer.put_text(*text);
  if (record.id.counter != 0) {
    writer.put(record.id.counter);
    writer.put_text(text_of(encode_over(record.id.over)));
  }

  std::vector<std::byte> end(align_up(record.bytes, 8) - record.bytes);
  wire::Writer whole(end);
  if (record.arrow) whole.put_bytes(frame::end_marker);
  whole.put_bytes(body);
  whole.put(static_cast<std::uint32_t>(body.size()));
  whole.put(crc32c(body));
  whole.put(record.bytes + end.size() + 16);
  whole.put_bytes(bytes_of(magic));
  return end;
}

Result<ObjectRecord> decode_end(Bytes last, std::uint64_t file_bytes) {
  if (last.size() < object_tail_bytes) return bad("{} bytes, a file of an object has more", file_bytes);
  wire::Reader tail(last.last(object_tail_bytes));
  const auto record_bytes = tail.take<std::uint32_t>(), crc = tail.take<std::uint32_t>();
  const auto length = tail.take<std::uint64_t>();
  if (text_of(tail.take_bytes(magic.size())) != magic)
    return bad("it does not end like a file of an object: it was cut off, or is another file");
  if (length != file_bytes) return bad("{} bytes, its end says {}", file_bytes, length);
  if (record_bytes > last.size() - object_tail_bytes)
    return bad("a record of {} bytes, there is room for {}", record_bytes, last.size() - object_tail_bytes);
  const Bytes body = last.subspan(last.size() - object_tail_bytes - record_bytes, record_bytes);
  if (const std::uint32_t own = crc32c(body); own != crc)
    return bad("its record's checksum is {:08x}, {:08x} was written", own, crc);

  ObjectRecord record;
  wire::Reader reader(body);
  for (std::uint64_t* number :
       {&record.number, &record.bytes, &record.rows, &record.keep, &record.id.writer, &record.id.number})
    *number = reader.take<std::uint64_t>();
  record.pool_user = reader.take<std::uint32_t>();
  record.user = reader.take<std::uint32_t>();
  record.crc32c = reader.take<std::uint32_t>();
  const auto flags = reader.take<std::uint32_t>();
  record.pool = reader.take_text();
  record.row = reader.take_text();
  record.column = reader.take_text();
  if ((flags & version_flag) != 0) {
    record.id.counter = reader.take<std::uint64_t>();
    if (record.id.counter > put_counter_max)
      return bad("its put's counter is {}, at most {} is possible", record.id.counter, put_counter_max);
    OFP_ASSIGN(record.id.over, decode_over(bytes_of(reader.take_text())));
  }
  if (!reader.done()) return bad("its record of {} bytes is invalid", record_bytes);
  if ((flags & ~(arrow_flag | version_flag)) != 0)
    return bad("its record has flags {:#x}, which are of another version", flags);
  record.arrow = (flags & arrow_flag) != 0;
  if (record.pool.size() > wire::pool_bytes_max || record.row.size() > wire::key_bytes_max ||
      record.column.size() > wire::key_bytes_max)
    return bad("names of {}, {} and {} bytes", record.pool.size(), record.row.size(), record.column.size());
  // By subtraction, because the record's length is not checked yet.
  const std::uint64_t rest = file_bytes - object_tail_bytes - record_bytes;
  if (record.bytes > rest || rest - record.bytes != gap_bytes(record.bytes, record.arrow))
    return bad("an object of {} bytes, the file has {} in front of its record", record.bytes, rest);
  return record;
}

}  // namespace offpath::pool
