#include "wire/control.h"

#include "wire/cursor.h"

namespace offpath::wire {

namespace {

Status finish(const Reader& reader, std::string_view what) {
  if (!reader.done()) return fail(Error::protocol, "{}: the payload has the wrong length", what);
  return {};
}

bool known(std::int32_t code) { return error_name(static_cast<Error>(code)) != "unknown"; }

}  // namespace

void encode(const Hello& hello, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(hello_magic);
  writer.put(hello.version);
  writer.put(hello.layout.request_slots);
  writer.put(hello.layout.reply_slots);
  writer.put(hello.layout.streams_max);
  writer.put(hello.force_staging);
  writer.put(hello.probe_address);
  writer.put(hello.probe_value);
  writer.put(hello.pid);
  writer.put(hello.nonce);
  writer.put_text(hello.name);
}

Result<Hello> decode_hello(Bytes payload) {
  Reader reader(payload);
  Hello hello;
  if (reader.take<std::uint64_t>() != hello_magic) return fail(Error::protocol, "hello: this is not an Offpath program");
  hello.version = reader.take<std::uint16_t>();
  if (reader.ok() && hello.version != protocol_version)
    return fail(Error::version, "the program speaks protocol version {}, the agent version {}: install the same release on both",
                hello.version, protocol_version);
  hello.layout.request_slots = reader.take<std::uint32_t>();
  hello.layout.reply_slots = reader.take<std::uint32_t>();
  hello.layout.streams_max = reader.take<std::uint32_t>();
  hello.force_staging = reader.take<std::uint8_t>();
  hello.probe_address = reader.take<std::uint64_t>();
  hello.probe_value = reader.take<std::uint64_t>();
  hello.pid = reader.take<std::int64_t>();
  hello.nonce = reader.take<Nonce>();
  hello.name = reader.take_text();
  OFP_TRY(finish(reader, "hello"));
  if (hello.name.size() > 255) return fail(Error::protocol, "hello: the name has {} bytes, at most 255 are allowed", hello.name.size());
  OFP_TRY(check_layout(hello.layout));
  return hello;
}

void encode(const Welcome& welcome, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(welcome.version);
  writer.put(welcome.direct);
  writer.put(welcome.incarnation);
  writer.put(welcome.memory_bytes_max);
  writer.put(welcome.pid);
  writer.put(welcome.proof);
  writer.put_text(welcome.agent_name);
  writer.put_text(welcome.agent_version);
  writer.put_text(welcome.reason);
}

Result<Welcome> decode_welcome(Bytes payload) {
  Reader reader(payload);
  Welcome welcome;
  welcome.version = reader.take<std::uint16_t>();
  if (reader.ok() && welcome.version != protocol_version)
    return fail(Error::version, "the agent speaks protocol version {}, this library version {}: install the same release on both",
                welcome.version, protocol_version);
  welcome.direct = reader.take<std::uint8_t>();
  welcome.incarnation = reader.take<std::uint64_t>();
  welcome.memory_bytes_max = reader.take<std::uint64_t>();
  welcome.pid = reader.take<std::int64_t>();
  welcome.proof = reader.take<Proof>();
  welcome.agent_name = reader.take_text();
  welcome.agent_version = reader.take_text();
  welcome.reason = reader.take_text();
  OFP_TRY(finish(reader, "welcome"));
  return welcome;
}

void encode(const Refusal& refusal, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(static_cast<std::int32_t>(refusal.code));
  writer.put_text(std::string_view(refusal.message).substr(0, 1024));
}

Result<Refusal> decode_refusal(Bytes payload) {
  Reader reader(payload);
  const auto code = reader.take<std::int32_t>();
  Refusal refusal{known(code) ? static_cast<Error>(code) : Error::protocol, std::string(reader.take_text())};
  OFP_TRY(finish(reader, "refusal"));
  return refusal;
}

void encode(const SegmentNotice& notice, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(notice.region);
  writer.put(notice.length);
  writer.put(notice.address);
  writer.put(notice.key);
}

Result<SegmentNotice> decode_segment_notice(Bytes payload) {
  Reader reader(payload);
  SegmentNotice notice{};
  notice.region = reader.take<std::uint32_t>();
  notice.length = reader.take<std::uint64_t>();
  notice.address = reader.take<std::uint64_t>();
  notice.key = reader.take<std::uint32_t>();
  OFP_TRY(finish(reader, "segment notice"));
  if (!is_segment(notice.region))
    return fail(Error::protocol, "segment notice: region {:#x} is not a segment's number", notice.region);
  if (notice.length == 0 || notice.length > region_bytes_max)
    return fail(Error::protocol, "segment notice: a length of {} bytes", notice.length);
  return notice;
}

}  // namespace offpath::wire
