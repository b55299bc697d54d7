#include "plugin/message.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "wire/fields.h"

namespace offpath::plugin {

namespace {

using wire::FieldReader;
using wire::FieldWriter;
using wire::Is;

// ---- the fields of each message, in order, and check(), which makes texts printable and enforces limits

Status check(auto&) { return {}; }

void fields(auto& way, Is<Ready> auto& m) {
  way.begins("a list of functions");
  way(m.protocol);
  way.cut(m.name, name_bytes_max);
  way.cut(m.confinement.seccomp, confinement_bytes_max);
  way.cut(m.confinement.namespaces, confinement_bytes_max);
  way.each(m.functions, [&way](auto& function) {
    way(function.name);
    way.cut(function.doc, doc_bytes_max);
  });
}
Status check(Ready& m) {
  if (m.functions.empty() || m.functions.size() > functions_max)
    return fail(Error::protocol, "{} functions, 1 to {} are allowed", m.functions.size(), functions_max);
  for (std::size_t i = 0; i < m.functions.size(); ++i) {
    const std::string& name = m.functions[i].name;
    if (!is_function_name(name))
      return fail(Error::protocol, "function {} has the name '{}'", i, printable(name.substr(0, 80)));
    m.functions[i].doc = printable(m.functions[i].doc);
  }
  m.name = printable(m.name);
  for (std::string* each : {&m.confinement.seccomp, &m.confinement.namespaces})
    *each = printable(std::string_view(*each).substr(0, confinement_bytes_max));
  return {};
}

void fields(auto& way, Is<Unusable> auto& m) {
  way.begins("a reason");
  way.cut(m.reason, reason_bytes_max);
}
Status check(Unusable& m) {
  if (m.reason.empty()) return fail(Error::protocol, "a reason without text");
  m.reason = printable(m.reason);
  return {};
}

void fields(auto& way, Is<LogLine> auto& m) {
  way.begins("a log line");
  way.choice(m.level, LogLevel::error, "level");
  way.cut(m.line, line_bytes_max);
}
Status check(LogLine& m) {
  if (m.line.size() > line_bytes_max)
    return fail(Error::protocol, "a log line of {} bytes, at most {}", m.line.size(), line_bytes_max);
  m.line = printable(m.line);
  return {};
}

void fields(auto& way, Is<Done> auto& m) {
  way.begins("a result");
  way(m.call, m.status);
  way.cut(m.error, error_bytes_max);
  way.each(m.outputs, [&way](auto& output) { way(output.name, output.bytes, output.flags); });
}
Status check(Done& m) {
  if (m.outputs.size() > outputs_max)
    return fail(Error::protocol, "{} outputs, at most {}", m.outputs.size(), outputs_max);
  if (m.error.size() > error_bytes_max)
    return fail(Error::protocol, "an error of {} bytes, at most {}", m.error.size(), error_bytes_max);
  if (m.status != 0 && !m.outputs.empty())
    return fail(Error::protocol, "status {} and {} outputs", m.status, m.outputs.size());
  for (std::size_t i = 0; i < m.outputs.size(); ++i) {
    const OutputNotice& output = m.outputs[i];  // its name is a key of the pool: any bytes
    if (output.name.size() > output_name_bytes_max || output.bytes > output_bytes_limit ||
        output.flags > (1 | output_in_room))
      return fail(Error::protocol, "output {}: name of {} bytes, {} bytes, flags {:#x}", i, output.name.size(),
                  output.bytes, output.flags);
    const auto before = m.outputs.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::ranges::find(m.outputs.begin(), before, output.name, &OutputNotice::name) != before)
      return fail(Error::protocol, "two outputs with the name '{}'", printable(output.name));
  }
  m.error = printable(m.error);
  return {};
}

// The size of a message between lanes, and the message if the packet encloses it.
void lane_message(FieldWriter& way, const auto& m) {
  way(m.bytes);
  way.bytes(m.is_enclosed ? Bytes(m.enclosed) : Bytes());
}
void lane_message(FieldReader& way, auto& m) {
  Bytes enclosed;
  way(m.bytes);
  way.bytes(enclosed);
  m.enclosed.assign(enclosed.begin(), enclosed.end());
  m.is_enclosed = m.enclosed.size() == m.bytes;
}
Status check_lane_message(const auto& m) {
  if (m.bytes > message_bytes_max || m.enclosed.size() > message_enclosed_max ||
      (!m.is_enclosed && !m.enclosed.empty()))
    return fail(Error::protocol, "a message of {} bytes, {} enclosed: at most {} are allowed, at most {} enclosed",
                m.bytes, m.enclosed.size(), message_bytes_max, message_enclosed_max);
  return {};
}

void fields(auto& way, Is<SendNotice> auto& m) {
  way.begins("a message to a lane");
  way(m.call, m.operation, m.lane, m.tag);
  lane_message(way, m);
}
Status check(SendNotice& m) { return check_lane_message(m); }

void fields(auto& way, Is<ReceiveNotice> auto& m) {
  way.begins("a receive");
  way(m.call, m.operation, m.lane, m.tag, m.room);
}

void fields(auto& way, Is<TakenNotice> auto& m) {
  way.begins("a note of a taken message");
  way(m.call, m.operation);
}

void fields(auto& way, Is<CallPacket> auto& m) {
  way.begins("a call");
  way(m.call, m.descriptors, m.description_bytes);
  way.each(m.forget, [&way](auto& kept) { way(kept); });
  way.bytes(m.enclosed);
}
Status check(CallPacket& m) {
  const bool has_description = m.enclosed.empty() ? m.descriptors != 0 : m.enclosed.size() == m.description_bytes;
  if (!has_description || m.descriptors > input_descriptors_max + 1)
    return fail(Error::protocol, "a call with {} descriptors and {} of {} bytes of its description", m.descriptors,
                m.enclosed.size(), m.description_bytes);
  return {};
}

void fields(auto& way, Is<MorePacket> auto&) { way.begins("more descriptors"); }

void fields(auto& way, Is<AnswerPacket> auto& m) {
  way.begins("an answer");
  way(m.call, m.operation, m.error);
  way.cut(m.why, error_bytes_max);
  lane_message(way, m);
}
Status check(AnswerPacket& m) {
  if (m.why.size() > error_bytes_max || m.error < 0)
    return fail(Error::protocol, "an answer with error {} and {} bytes of reason", m.error, m.why.size());
  return check_lane_message(m);
}

void fields(auto& way, Is<Description> auto& m) {
  way.begins("a description");
  way(m.deadline_ns, m.output_bytes_max, m.arguments_at, m.arguments_bytes, m.function);
  way.each(m.inputs, [&way](auto& input) {
    way(input.row, input.column, input.descriptor, input.offset, input.bytes, input.flags, input.kept,
        input.kept_bytes);
  });
  way(m.session, m.worker, m.lane, m.lanes);
  way.each(m.rooms, [&way](auto& room) { way(room.name, room.bytes, room.descriptor, room.kept, room.kept_bytes); });
}

// ---- both directions: the kind of a message is its place in the variant, from 1 on

template <class Message>
void encode_packet(const Message& message, std::vector<std::byte>& to) {
  FieldWriter way(to);
  way(static_cast<std::uint8_t>(message.index() + 1));
  std::visit([&way](const auto& each) { fields(way, each); }, message);
}

template <class Message, std::size_t... i>
Result<Message> decode_packet(Bytes packet, std::index_sequence<i...>) {
  const auto kind = packet.empty() ? std::size_t{0} : static_cast<std::size_t>(packet[0]);
  Result<Message> result = fail(Error::protocol, "a message of kind {} and {} bytes", kind, packet.size());
  const auto take = [&]<class One>(One one) {
    FieldReader way(packet.subspan(1));
    fields(way, one);
    Status status = way.finish();
    if (status) status = check(one);
    if (status)
      result = Message(std::move(one));
    else
      result = tl::unexpected(std::move(status).error());
  };
  ((kind == i + 1 ? take(std::variant_alternative_t<i, Message>()) : void()), ...);
  return result;
}

template <class Message>
Result<Message> decode_packet(Bytes packet) {
  return decode_packet<Message>(packet, std::make_index_sequence<std::variant_size_v<Message>>());
}

}  // namespace

bool is_function_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  return !name.empty() && name.size() <= name_bytes_max && std::ranges::all_of(name, allowed);
}

Result<FromWorker> decode_from_worker(Bytes packet) {
  // Another version may differ after its number, which the reader compares first.
  Ready other;
  if (constexpr std::size_t at = 1; packet.size() >= at + sizeof other.protocol && packet[0] == std::byte{1}) {
    other.protocol = load<std::uint32_t>(packet.data() + at);
    if (other.protocol != protocol_version) return other;
  }
  return decode_packet<FromWorker>(packet);
}

Result<FromAgent> decode_from_agent(Bytes packet) { return decode_packet<FromAgent>(packet); }

Result<Description> decode_description(Bytes bytes) {
  FieldReader way(bytes);
  Description description;
  fields(way, description);
  OFP_TRY(way.finish(wire::Rest::allowed));
  if (description.inputs.size() > inputs_max || description.rooms.size() > outputs_max)
    return fail(Error::protocol, "a description with {} inputs and {} rooms for outputs, at most {} and {}",
                description.inputs.size(), description.rooms.size(), inputs_max, outputs_max);
  return description;
}

void encode(const FromWorker& message, std::vector<std::byte>& to) { encode_packet(message, to); }
void encode(const FromAgent& message, std::vector<std::byte>& to) { encode_packet(message, to); }
void encode(const Description& description, std::vector<std::byte>& to) {
  FieldWriter way(to);
  fields(way, description);
}

}  // namespace offpath::plugin
