#include "wire/control.h"

#include "wire/cursor.h"

namespace offpath::wire {

namespace {

Status finish(const Reader& reader, std::string_view what) {
  if (!reader.done()) return fail(Error::protocol, "{}: the payload has the wrong length", what);
  return {};
}

bool known(std::int32_t code) { return error_name(static_cast<Error>(code)) != "unknown"; }

constexpr std::size_t outcome_text_max = 1024;

}  // namespace

std::string_view control_type_name(ControlType type) noexcept {
  static constexpr std::string_view names[] = {
      "frame of type 0", "hello", "challenge", "proof",     "welcome",   "refusal", "segment",    "segment_ok", "segment_gone",
      "wake",            "descriptor", "offer", "read",     "read_data", "read_done", "write",   "write_data", "write_done"};
  static_assert(std::size(names) == control_types + 1);
  const auto number = static_cast<std::uint16_t>(type);
  return number <= control_types ? names[number] : "frame of an unknown type";
}

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

void encode(const TransferRequest& request, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(request.token);
  writer.put(static_cast<std::uint32_t>(request.count()));
  writer.put(std::uint32_t{0});
  writer.put_bytes(request.pieces);
}

Result<TransferRequest> decode_transfer(Bytes payload) {
  Reader reader(payload);
  TransferRequest request{};
  request.token = reader.take<std::uint64_t>();
  const auto count = reader.take<std::uint32_t>();
  const auto reserved = reader.take<std::uint32_t>();
  request.pieces = reader.take_bytes(std::uint64_t{count} * sizeof(TransferPiece));
  OFP_TRY(finish(reader, "transfer"));
  if (reserved != 0) return fail(Error::protocol, "transfer: the reserved field is {}, it must be 0", reserved);
  return request;
}

void encode(const Outcome& outcome, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(outcome.token);
  if (outcome.status) {
    writer.put(std::int32_t{0});
    writer.put_text({});
  } else {
    writer.put(static_cast<std::int32_t>(outcome.status.error().code));
    writer.put_text(std::string_view(outcome.status.error().message).substr(0, outcome_text_max));
  }
}

Result<Outcome> decode_outcome(Bytes payload) {
  Reader reader(payload);
  Outcome outcome;
  outcome.token = reader.take<std::uint64_t>();
  const auto code = reader.take<std::int32_t>();
  const std::string_view text = reader.take_text();
  OFP_TRY(finish(reader, "outcome"));
  if (text.size() > outcome_text_max)
    return fail(Error::protocol, "outcome: a text of {} bytes, at most {} are allowed", text.size(), outcome_text_max);
  if (code == 0) return outcome;
  if (!known(code)) return fail(Error::protocol, "outcome: code {} is no error's number", code);
  const auto error = static_cast<Error>(code);
  outcome.status = tl::unexpected<Failure>(Failure{error, std::string(text.empty() ? error_text(error) : text)});
  return outcome;
}

Result<RegionId> decode_segment_number(Bytes payload) {
  Reader reader(payload);
  const auto region = reader.take<RegionId>();
  OFP_TRY(finish(reader, "segment number"));
  if (!is_segment(region)) return fail(Error::protocol, "segment number: region {:#x} is not a segment's number", region);
  return region;
}

Result<std::uint64_t> decode_number(Bytes payload) {
  Reader reader(payload);
  const auto number = reader.take<std::uint64_t>();
  OFP_TRY(finish(reader, "number"));
  return number;
}

}  // namespace offpath::wire
