#include "wire/control.h"

#include "wire/fields.h"
#include "wire/limits.h"

namespace offpath::wire {

namespace {

constexpr std::size_t refusal_text_max = 1024;
constexpr std::size_t outcome_text_max = 1024;

void fields(auto& way, Is<Hello> auto& m) {
  way.begins("hello");
  auto magic = hello_magic;  // decode_hello checks it before everything else
  way(magic, m.version, m.layout.request_slots, m.layout.reply_slots, m.layout.streams_max, m.force_staging,
      m.channel_address, m.pid, m.nonce);
  way.text(m.name, name_bytes_max, "the name");
  way.text(m.job_labels.job, job_bytes_max, "the job");
  way.text(m.job_labels.step, job_bytes_max, "the step");
  way.text(m.job_labels.cgroup, cgroup_bytes_max, "the cgroup");
}

void fields(auto& way, Is<Welcome> auto& m) {
  way.begins("welcome");
  way(m.version, m.direct, m.incarnation, m.memory_bytes_max, m.pid, m.silence_ms, m.proof, m.agent_name,
      m.agent_version, m.reason);
}

void fields(auto& way, Is<Refusal> auto& m) {
  way.begins("refusal");
  way.error(m.code);
  way.cut(m.message, refusal_text_max);
}

void fields(auto& way, Is<SegmentNotice> auto& m) {
  way.begins("segment notice");
  way(m.region, m.length, m.address, m.key);
}

void fields(auto& way, Is<MemoryExport> auto& m) {
  way.begins("memory export");
  way(m.region, m.generation, m.address, m.length, m.key);
  way.bytes(m.descriptor);
}

template <class Message>
void write(const Message& message, std::vector<std::byte>& to) {
  FieldWriter way(to);
  fields(way, message);
}

template <class Message>
Result<Message> read(Bytes payload) {
  Message message{};
  FieldReader way(payload);
  fields(way, message);
  OFP_TRY(way.finish());
  return message;
}

Status finish(const Reader& reader, std::string_view what) {
  if (!reader.done()) return fail(Error::protocol, "{}: the payload has the wrong length", what);
  return {};
}

}  // namespace

std::string_view control_type_name(ControlType type) noexcept {
  static constexpr std::string_view names[] = {
      "frame of type 0", "hello",         "challenge",  "proof",           "welcome",
      "refusal",         "segment",       "segment_ok", "segment_gone",    "wake",
      "descriptor",      "offer",         "read",       "read_data",       "read_done",
      "write",           "write_data",    "write_done", "rendezvous",      "withdraw",
      "withdrawn",       "memory_export", "imported",   "segment_refused", "requests"};
  static_assert(std::size(names) == control_types + 1);
  const auto number = static_cast<std::uint16_t>(type);
  return number <= control_types ? names[number] : "frame of an unknown type";
}

void encode(const Hello& hello, std::vector<std::byte>& to) { write(hello, to); }
void encode(const Welcome& welcome, std::vector<std::byte>& to) { write(welcome, to); }
void encode(const Refusal& refusal, std::vector<std::byte>& to) { write(refusal, to); }
void encode(const SegmentNotice& notice, std::vector<std::byte>& to) { write(notice, to); }
void encode(const MemoryExport& exported, std::vector<std::byte>& to) { write(exported, to); }

// Another version's message may have a different layout after its number, so the number is checked first.
Result<Hello> decode_hello(Bytes payload) {
  Reader start(payload);
  if (start.take<std::uint64_t>() != hello_magic) return fail(Error::protocol, "hello: this is not an Offpath program");
  const auto version = start.take<std::uint16_t>();
  if (start.ok() && version != protocol_version)
    return fail(Error::version,
                "the program speaks protocol version {}, the agent version {}: install the same release on both",
                version, protocol_version);
  OFP_ASSIGN(Hello hello, read<Hello>(payload));
  OFP_TRY(check_layout(hello.layout));
  return hello;
}

Result<Welcome> decode_welcome(Bytes payload) {
  Reader start(payload);
  const auto version = start.take<std::uint16_t>();
  if (start.ok() && version != protocol_version)
    return fail(Error::version,
                "the agent speaks protocol version {}, this library version {}: install the same release on both",
                version, protocol_version);
  OFP_ASSIGN(Welcome welcome, read<Welcome>(payload));
  if (welcome.silence_ms < silence_ms_min || welcome.silence_ms > silence_ms_max)
    return fail(Error::protocol, "welcome: a silence of {} ms, from {} to {} are allowed", welcome.silence_ms,
                silence_ms_min, silence_ms_max);
  return welcome;
}

Result<Refusal> decode_refusal(Bytes payload) { return read<Refusal>(payload); }

Result<SegmentNotice> decode_segment_notice(Bytes payload) {
  OFP_ASSIGN(const SegmentNotice notice, read<SegmentNotice>(payload));
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
  if (reserved != 0) return fail(Error::protocol, "transfer: the reserved field is {} and must be 0", reserved);
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
  if (error_name(static_cast<Error>(code)) == "unknown")
    return fail(Error::protocol, "outcome: {} is not an error code", code);
  const auto error = static_cast<Error>(code);
  outcome.status = tl::unexpected<Failure>(Failure{error, std::string(text.empty() ? error_text(error) : text)});
  return outcome;
}

void encode(const Withdrawal& withdrawal, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(withdrawal.region);
  writer.put(withdrawal.generation);
}

Result<Withdrawal> decode_withdrawal(Bytes payload) {
  Reader reader(payload);
  Withdrawal withdrawal;
  withdrawal.region = reader.take<RegionId>();
  withdrawal.generation = reader.take<std::uint32_t>();
  OFP_TRY(finish(reader, "withdrawal"));
  if (is_segment(withdrawal.region) && withdrawal.generation != 0)
    return fail(Error::protocol, "withdrawal: segment {} has generation {}, segments have 0",
                withdrawal.region & ~segment_flag, withdrawal.generation);
  return withdrawal;
}

Result<MemoryExport> decode_memory_export(Bytes payload) {
  OFP_ASSIGN(const MemoryExport exported, read<MemoryExport>(payload));
  if (is_segment(exported.region) ? exported.generation != 0 : exported.region >= regions_max)
    return fail(Error::protocol, "memory export: there is no region {:#x} of generation {}", exported.region,
                exported.generation);
  if (exported.length == 0 || exported.length > region_bytes_max || exported.address > ~0ull - exported.length)
    return fail(Error::protocol, "memory export: {} bytes at {:#x}", exported.length, exported.address);
  if (exported.key == 0) return fail(Error::protocol, "memory export: the key is 0, keys begin with 1");
  if (exported.descriptor.empty() || exported.descriptor.size() > MemoryExport::descriptor_bytes_max)
    return fail(Error::protocol, "memory export: a descriptor of {} bytes, at most {} are allowed",
                exported.descriptor.size(), MemoryExport::descriptor_bytes_max);
  return exported;
}

Result<RegionId> decode_segment_number(Bytes payload) {
  Reader reader(payload);
  const auto region = reader.take<RegionId>();
  OFP_TRY(finish(reader, "segment number"));
  if (!is_segment(region))
    return fail(Error::protocol, "segment number: region {:#x} is not a segment's number", region);
  return region;
}

Result<std::uint64_t> decode_number(Bytes payload) {
  Reader reader(payload);
  const auto number = reader.take<std::uint64_t>();
  OFP_TRY(finish(reader, "number"));
  return number;
}

}  // namespace offpath::wire
