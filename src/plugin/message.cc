#include "plugin/message.h"

#include <algorithm>
#include <concepts>
#include <type_traits>

#include "wire/cursor.h"

namespace offpath::plugin {

namespace {

using wire::Reader;
using wire::Writer;

enum class Kind : std::uint8_t { ready = 1, unusable, log, done, call, more, send, receive, taken, answer };

std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F; }, '?');
  return out;
}

std::string_view cut(std::string_view text, std::size_t bytes_max) { return text.substr(0, bytes_max); }

Result<Ready> take_ready(Reader& reader) {
  Ready ready;
  ready.protocol = reader.take<std::uint32_t>();
  // Another protocol may differ from here on: the reader compares the number first.
  if (reader.ok() && ready.protocol != protocol_version) return ready;
  ready.name = printable(reader.take_text());
  ready.confinement.seccomp = printable(cut(reader.take_text(), confinement_bytes_max));
  ready.confinement.namespaces = printable(cut(reader.take_text(), confinement_bytes_max));
  const auto count = reader.take<std::uint16_t>();
  if (count == 0 || count > functions_max)
    return fail(Error::protocol, "{} functions, 1 to {} are allowed", count, functions_max);
  for (unsigned i = 0; i < count && reader.ok(); ++i) {
    const std::string_view name = reader.take_text(), doc = reader.take_text();
    if (reader.ok() && !is_function_name(name))
      return fail(Error::protocol, "function {} has the name '{}'", i, printable(cut(name, 80)));
    ready.functions.push_back({std::string(name), printable(doc)});
  }
  if (!reader.done()) return fail(Error::protocol, "a list of functions that ends early or late");
  return ready;
}

Result<LogLine> take_log(Reader& reader) {
  const auto level = reader.take<std::uint8_t>();
  std::string line = printable(reader.take_text());
  if (!reader.done() || level > static_cast<int>(LogLevel::error) || line.size() > line_bytes_max)
    return fail(Error::protocol, "a log line of level {} and {} bytes", level, line.size());
  return LogLine{static_cast<LogLevel>(level), std::move(line)};
}

Result<Done> take_done(Reader& reader) {
  Done done;
  done.call = reader.take<std::uint64_t>();
  done.status = reader.take<std::int32_t>();
  done.error = printable(reader.take_text());
  const auto count = reader.take<std::uint16_t>();
  if (count > outputs_max) return fail(Error::protocol, "{} outputs, at most {}", count, outputs_max);
  if (done.error.size() > error_bytes_max)
    return fail(Error::protocol, "an error of {} bytes, at most {}", done.error.size(), error_bytes_max);
  if (done.status != 0 && count != 0) return fail(Error::protocol, "status {} and {} outputs", done.status, count);
  for (unsigned i = 0; i < count && reader.ok(); ++i) {
    OutputNotice output;
    output.name = reader.take_text();  // a key of the pool: any bytes
    output.bytes = reader.take<std::uint64_t>();
    output.flags = reader.take<std::uint32_t>();
    if (output.name.size() > output_name_bytes_max || output.bytes > output_bytes_limit ||
        output.flags > (1 | output_in_room))
      return fail(Error::protocol, "output {}: name of {} bytes, {} bytes, flags {:#x}", i, output.name.size(),
                  output.bytes, output.flags);
    if (std::ranges::find(done.outputs, output.name, &OutputNotice::name) != done.outputs.end())
      return fail(Error::protocol, "two outputs with the name '{}'", printable(output.name));
    done.outputs.push_back(std::move(output));
  }
  if (!reader.done()) return fail(Error::protocol, "a result that ends early or late");
  return done;
}

void put_key(Writer& writer, std::string_view key) {
  writer.put(static_cast<std::uint32_t>(key.size()));
  writer.put_bytes(bytes_of(key));
}

std::string take_key(Reader& reader) { return std::string(text_of(reader.take_bytes(reader.take<std::uint32_t>()))); }

struct Putting {
  Writer& writer;
  void key(const std::string& value) { put_key(writer, value); }
  void operator()(const auto&... values) { (writer.put(values), ...); }
};
struct Taking {
  Reader& reader;
  void key(std::string& value) { value = take_key(reader); }
  void operator()(auto&... values) { ((values = reader.take<std::remove_reference_t<decltype(values)>>()), ...); }
};

// The bytes of a message, if they are enclosed.
Status take_enclosed(Reader& reader, std::uint64_t bytes, bool& is_enclosed, std::vector<std::byte>& enclosed) {
  const auto way = reader.take<std::uint8_t>();
  is_enclosed = way == 1;
  if (way > 1 || bytes > message_bytes_max || (is_enclosed && bytes > message_enclosed_max))
    return fail(Error::protocol, "a message of {} bytes, enclosed {}: at most {} are allowed, at most {} if enclosed",
                bytes, way, message_bytes_max, message_enclosed_max);
  if (!is_enclosed) return {};
  const Bytes taken = reader.take_bytes(bytes);
  enclosed.assign(taken.begin(), taken.end());
  return {};
}

Result<SendNotice> take_send(Reader& reader) {
  SendNotice send;
  Taking{reader}(send.call, send.operation, send.lane, send.tag, send.bytes);
  OFP_TRY(take_enclosed(reader, send.bytes, send.is_enclosed, send.enclosed));
  if (!reader.done()) return fail(Error::protocol, "a message to a lane that ends early or late");
  return send;
}

Result<ReceiveNotice> take_receive(Reader& reader) {
  ReceiveNotice receive;
  Taking{reader}(receive.call, receive.operation, receive.lane, receive.tag, receive.room);
  if (!reader.done()) return fail(Error::protocol, "a receive that ends early or late");
  return receive;
}

Result<TakenNotice> take_taken(Reader& reader) {
  TakenNotice taken;
  Taking{reader}(taken.call, taken.operation);
  if (!reader.done()) return fail(Error::protocol, "a note of a taken message that ends early or late");
  return taken;
}

Result<FromAgent> take_answer(Reader& reader) {
  AnswerPacket answer;
  Taking{reader}(answer.call, answer.operation, answer.error);
  answer.why = reader.take_text();
  answer.bytes = reader.take<std::uint64_t>();
  OFP_TRY(take_enclosed(reader, answer.bytes, answer.is_enclosed, answer.enclosed));
  if (!reader.done() || answer.why.size() > error_bytes_max || answer.error < 0)
    return fail(Error::protocol, "an answer that ends early or late");
  return FromAgent(std::move(answer));
}

// Fields of descriptions, in order: one list for both directions.
void fields(auto& way, auto& input)
  requires std::same_as<std::remove_const_t<std::remove_reference_t<decltype(input)>>, InputNotice>
{
  way.key(input.row);
  way.key(input.column);
  way(input.descriptor, input.offset, input.bytes, input.flags, input.kept, input.kept_bytes);
}
void fields(auto& way, auto& room)
  requires std::same_as<std::remove_const_t<std::remove_reference_t<decltype(room)>>, RoomNotice>
{
  way.key(room.name);
  way(room.bytes, room.descriptor, room.kept, room.kept_bytes);
}
template <class Notice>
void put_each(Writer& writer, const std::vector<Notice>& notices) {
  writer.put(static_cast<std::uint32_t>(notices.size()));
  Putting way{writer};
  for (const Notice& each : notices) fields(way, each);
}

template <class Notice>
Status take_each(Reader& reader, std::size_t most, std::string_view what, std::vector<Notice>& notices) {
  const auto count = reader.take<std::uint32_t>();
  if (count > most) return fail(Error::protocol, "{} {}, at most {}", count, what, most);
  Taking way{reader};
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) fields(way, notices.emplace_back());
  return {};
}

template <class Message>
Result<FromWorker> either(Result<Message> message) {
  if (!message) return tl::unexpected<Failure>(std::move(message).error());
  return FromWorker(std::move(*message));
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
  Reader reader(packet);
  const auto kind = reader.take<std::uint8_t>();
  switch (static_cast<Kind>(kind)) {
    case Kind::ready:
      return either(take_ready(reader));
    case Kind::unusable: {
      Unusable unusable{printable(reader.take_text())};
      if (!reader.done() || unusable.reason.empty()) return fail(Error::protocol, "a reason that ends early or late");
      return unusable;
    }
    case Kind::log:
      return either(take_log(reader));
    case Kind::done:
      return either(take_done(reader));
    case Kind::send:
      return either(take_send(reader));
    case Kind::receive:
      return either(take_receive(reader));
    case Kind::taken:
      return either(take_taken(reader));
    default:
      return fail(Error::protocol, "a message of kind {} and {} bytes", kind, packet.size());
  }
}

Result<FromAgent> decode_from_agent(Bytes packet) {
  Reader reader(packet);
  const auto kind = static_cast<Kind>(reader.take<std::uint8_t>());
  if (kind == Kind::more && reader.done()) return MorePacket{};
  if (kind == Kind::answer) return take_answer(reader);
  CallPacket call;
  call.call = reader.take<std::uint64_t>();
  call.descriptors = reader.take<std::uint32_t>();
  call.description_bytes = reader.take<std::uint64_t>();
  const auto way = reader.take<std::uint8_t>();
  const bool is_enclosed = way == 1;
  const auto forgotten = reader.take<std::uint16_t>();
  for (unsigned i = 0; i < forgotten && reader.ok(); ++i) call.forget.push_back(reader.take<std::uint64_t>());
  if (is_enclosed) call.enclosed = reader.take_bytes(call.description_bytes);
  const bool has_description = is_enclosed ? !call.enclosed.empty() : call.descriptors != 0;
  if (kind != Kind::call || !reader.done() || way > 1 || !has_description ||
      call.descriptors > input_descriptors_max + 1)
    return fail(Error::protocol, "a message of kind {} and {} bytes", static_cast<int>(kind), packet.size());
  return call;
}

Result<Description> decode_description(Bytes bytes) {
  Reader reader(bytes);
  Description description;
  description.deadline_ns = reader.take<TimeNs>();
  description.output_bytes_max = reader.take<std::uint64_t>();
  description.arguments_at = reader.take<std::uint64_t>();
  description.arguments_bytes = reader.take<std::uint64_t>();
  description.function = reader.take_text();
  OFP_TRY(take_each(reader, inputs_max, "inputs", description.inputs));
  description.session = reader.take<std::uint64_t>();
  description.worker = reader.take<std::uint64_t>();
  description.lane = reader.take<std::uint32_t>();
  description.lanes = reader.take<std::uint32_t>();
  OFP_TRY(take_each(reader, outputs_max, "rooms for outputs", description.rooms));
  if (!reader.ok()) return fail(Error::protocol, "a description that ends early");
  return description;
}

namespace {

void put(Writer& writer, const Ready& ready) {
  writer.put(Kind::ready);
  writer.put(ready.protocol);
  writer.put_text(cut(ready.name, name_bytes_max));
  writer.put_text(cut(ready.confinement.seccomp, confinement_bytes_max));
  writer.put_text(cut(ready.confinement.namespaces, confinement_bytes_max));
  writer.put(static_cast<std::uint16_t>(ready.functions.size()));
  for (const FunctionInfo& function : ready.functions) {
    writer.put_text(function.name);
    writer.put_text(cut(function.doc, doc_bytes_max));
  }
}

void put(Writer& writer, const Unusable& unusable) {
  writer.put(Kind::unusable);
  writer.put_text(cut(unusable.reason, 4096));
}

void put(Writer& writer, const LogLine& line) {
  writer.put(Kind::log);
  writer.put(static_cast<std::uint8_t>(line.level));
  writer.put_text(cut(line.line, line_bytes_max));
}

void put(Writer& writer, const Done& done) {
  writer.put(Kind::done);
  writer.put(done.call);
  writer.put(done.status);
  writer.put_text(cut(done.error, error_bytes_max));
  writer.put(static_cast<std::uint16_t>(done.outputs.size()));
  for (const OutputNotice& output : done.outputs) {
    writer.put_text(output.name);
    writer.put(output.bytes);
    writer.put(output.flags);
  }
}

void put(Writer& writer, const CallPacket& call) {
  writer.put(Kind::call);
  writer.put(call.call);
  writer.put(call.descriptors);
  writer.put(call.description_bytes);
  writer.put(static_cast<std::uint8_t>(!call.enclosed.empty()));
  writer.put(static_cast<std::uint16_t>(call.forget.size()));
  for (const std::uint64_t kept : call.forget) writer.put(kept);
  writer.put_bytes(call.enclosed);
}

void put(Writer& writer, const MorePacket&) { writer.put(Kind::more); }

void put_enclosed(Writer& writer, const auto& message) {
  writer.put(static_cast<std::uint8_t>(message.is_enclosed));
  if (message.is_enclosed) writer.put_bytes(message.enclosed);
}

void put(Writer& writer, const SendNotice& send) {
  Putting{writer}(Kind::send, send.call, send.operation, send.lane, send.tag, send.bytes);
  put_enclosed(writer, send);
}

void put(Writer& writer, const ReceiveNotice& receive) {
  Putting{writer}(Kind::receive, receive.call, receive.operation, receive.lane, receive.tag, receive.room);
}

void put(Writer& writer, const TakenNotice& taken) { Putting{writer}(Kind::taken, taken.call, taken.operation); }

void put(Writer& writer, const AnswerPacket& answer) {
  Putting{writer}(Kind::answer, answer.call, answer.operation, answer.error);
  writer.put_text(cut(answer.why, error_bytes_max));
  writer.put(answer.bytes);
  put_enclosed(writer, answer);
}

}  // namespace

void encode(const FromWorker& message, std::vector<std::byte>& to) {
  Writer writer(to);
  std::visit([&](const auto& each) { put(writer, each); }, message);
}

void encode(const FromAgent& message, std::vector<std::byte>& to) {
  Writer writer(to);
  std::visit([&](const auto& each) { put(writer, each); }, message);
}

void encode(const Description& description, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(description.deadline_ns);
  writer.put(description.output_bytes_max);
  writer.put(description.arguments_at);
  writer.put(description.arguments_bytes);
  writer.put_text(description.function);
  put_each(writer, description.inputs);
  writer.put(description.session);
  writer.put(description.worker);
  writer.put(description.lane);
  writer.put(description.lanes);
  put_each(writer, description.rooms);
}

}  // namespace offpath::plugin
