#include "tcp/slow_path/slow_path_agent.h"

#include <algorithm>

#include "tcp/slow_path/slow_path_records.h"

namespace offpath::tcp {

namespace {

using wire::TcpSlowKind;

// Records without room: beyond this many, no record that may need an answer is taken.
constexpr std::size_t answers_waiting_max = 1024;

wire::TcpSlowListen slow_listen(IpFamily family, std::uint16_t port, std::uint64_t receive_bytes,
                                std::uint8_t traffic_class) noexcept {
  return {port, family == IpFamily::v6 ? std::uint8_t{1} : std::uint8_t{0}, traffic_class, {}, receive_bytes};
}

}  // namespace

AgentSlowPath::AgentSlowPath(Stack& stack, MutableBytes memory, const wire::TcpSlowLayout& layout,
                             SlowPathCounters& counters, TimeNs now)
    : stack_(stack),
      area_(SlowPathArea::Side::agent, memory, layout),
      counters_(counters),
      ring_bytes_(layout.ring_bytes),
      silent_since_(now) {
  const StackOptions& options = stack.options();
  wire::TcpSlowSetup setup{};
  setup.version = wire::tcp_slow_version;
  for (const IpFamily family : {IpFamily::v4, IpFamily::v6}) {
    const IpInterface& own = options.own(family);
    setup.families[static_cast<std::size_t>(family)] = {own.address, own.gateway, own.prefix_length, {}};
  }
  setup.flows_max = options.flows_max;
  setup.half_open_max = options.half_open_max;
  setup.time_wait_max = options.time_wait_max;
  setup.window_max = options.window_max;
  setup.secret[0] = options.secret.first;
  setup.secret[1] = options.secret.second;
  setup.cookies_until_ns = static_cast<std::uint64_t>(stack.cookies_until());
  setup.time_wait_ns = static_cast<std::uint64_t>(options.time_wait_ns);
  setup.mtu = stack.port().mtu;
  std::ranges::copy(stack.port().mac, setup.mac);
  setup.checksum = stack.port().checksum ? 1 : 0;
  setup.syn_cookies = options.syn_cookies ? 1 : 0;
  area_.post(TcpSlowKind::setup, setup);
  stack_.lean_on(this);
}

AgentSlowPath::~AgentSlowPath() { stack_.lean_on(nullptr); }

Result<bool> AgentSlowPath::poll(TimeNs now) {
  area_.wake_up();
  OFP_TRY(area_.flush());
  const std::uint64_t taken = area_.taken_there();
  if (taken != taken_seen_ || !waited_) silent_since_ = now;
  taken_seen_ = taken;
  if (opening_ > 0 && !area_.unread_there() && now >= look_at_) {
    area_.post(TcpSlowKind::look, std::uint64_t{0});
    look_at_ = now + look_every_ns;
  }
  waited_ = area_.unread_there();
  if (now - silent_since_ >= silence_ns)
    return fail(Error::timeout, "the slow-path process has not responded for {} s", silence_ns / second_ns);
  SlowPathArea::Record record;
  int count = 0;
  for (; count < records_of_a_round && area_.waiting() < answers_waiting_max; ++count) {
    OFP_ASSIGN(const bool there, area_.take(record));
    if (!there) break;
    OFP_TRY(take(record, now));
  }
  return count > 0;
}

Status AgentSlowPath::take(const SlowPathArea::Record& record, TimeNs now) {
  switch (record.kind) {
    case TcpSlowKind::adopt:
      return adopt(record.payload, now);
    case TcpSlowKind::failed: {
      OFP_ASSIGN(const wire::TcpSlowKey key, read_whole<wire::TcpSlowKey>(record.payload));
      if (key.value < 1 || key.value > static_cast<std::uint64_t>(FlowError::in_use))
        return fail(Error::protocol, "a failed connection with the unknown reason {}", key.value);
      opening_ -= stack_.connect_failed(flow_key(key), key.attempt, static_cast<FlowError>(key.value)) ? 1 : 0;
      return {};
    }
    case TcpSlowKind::returned: {
      OFP_ASSIGN(const ReceivedFrame frame, read_frame(record.payload));
      stack_.receive_returned(frame, now);
      return {};
    }
    case TcpSlowKind::neighbour: {
      OFP_ASSIGN(const wire::TcpSlowNeighbour told, read_whole<wire::TcpSlowNeighbour>(record.payload));
      MacAddress mac;
      std::copy(std::begin(told.mac), std::end(told.mac), mac.begin());
      return stack_.learn_neighbour(told.address, mac, now);
    }
    case TcpSlowKind::send:
      return send(record.payload);
    default:
      return fail(Error::protocol, "a record of the unknown kind {}", static_cast<unsigned>(record.kind));
  }
}

Status AgentSlowPath::adopt(Bytes payload, TimeNs now) {
  OFP_ASSIGN(const wire::TcpHandedFlow handed, read_front<wire::TcpHandedFlow>(payload));
  ReceivedFrame frame;
  if (!payload.empty()) {
    OFP_ASSIGN(frame, read_frame(payload));
  }
  OFP_ASSIGN(const bool adopted, stack_.adopt(handed, payload.empty() ? nullptr : &frame, now));
  ++(adopted ? counters_.adopted : counters_.declined);
  if (adopted && handed.key.attempt != 0) --opening_;
  area_.post(adopted ? TcpSlowKind::confirmed : TcpSlowKind::declined,
             slow_key(flow_key(handed.key), handed.key.attempt));
  return {};
}

Status AgentSlowPath::send(Bytes payload) {
  OFP_ASSIGN(const wire::TcpSlowSend head, read_front<wire::TcpSlowSend>(payload));
  FrameToSend frame;
  if (payload.size() > frame.header.size() || head.tcp_offset > 255 || head.checksum_partial > 1)
    return fail(Error::protocol, "a frame of {} bytes to send, with TCP's header at {}", payload.size(),
                head.tcp_offset);
  std::ranges::copy(payload, frame.header.begin());
  frame.header_bytes = static_cast<std::uint8_t>(payload.size());
  frame.tcp_offset = static_cast<std::uint8_t>(head.tcp_offset);
  frame.checksum_partial = head.checksum_partial == 1;
  return stack_.send_frame(frame);
}

void AgentSlowPath::frame(const ReceivedFrame& frame, bool of_neighbour) {
  const std::uint64_t left = of_neighbour ? ring_bytes_ / 4 : ring_bytes_ / 2;
  const wire::TcpSlowFrame head{frame.checksum_verified ? 1u : 0u};
  const bool posted = frame.bytes.size() <= wire::tcp_slow_frame_bytes_max &&
                      area_.post_if_room(TcpSlowKind::frame, head, frame.bytes, left);
  ++(posted ? counters_.frames_out : counters_.frames_dropped);
}

void AgentSlowPath::listen(IpFamily family, std::uint16_t port, std::uint64_t receive_bytes,
                           const FlowOptions& options) {
  area_.post(TcpSlowKind::listen, slow_listen(family, port, receive_bytes, options.traffic_class(family)));
}
void AgentSlowPath::stop_listening(IpFamily family, std::uint16_t port) {
  area_.post(TcpSlowKind::stop_listening, slow_listen(family, port, 0, 0));
}
void AgentSlowPath::connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes,
                            const FlowOptions& options) {
  ++opening_;
  const CongestionControl& control = stack_.control(options.congestion);
  area_.post(TcpSlowKind::connect, wire::TcpSlowConnect{slow_key(key, attempt, receive_bytes),
                                                        options.traffic_class(key.family()),
                                                        control.wants_ecn() ? std::uint8_t{1} : std::uint8_t{0},
                                                        {}});
}
void AgentSlowPath::abandon(const FlowKey& key, std::uint32_t attempt) {
  --opening_;
  area_.post(TcpSlowKind::abandon, slow_key(key, attempt));
}
void AgentSlowPath::time_wait(const wire::TcpHandedFlow& flow) {
  ++counters_.handed_back;
  area_.post(TcpSlowKind::time_wait, flow);
}
void AgentSlowPath::resolve(const IpAddress& address) {
  area_.post(TcpSlowKind::resolve, wire::TcpSlowNeighbour{address, {}, 0});
}

}  // namespace offpath::tcp
