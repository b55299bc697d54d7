#include "tcp/slow_path/slow_path_host.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tcp/slow_path/slow_path_records.h"

namespace offpath::tcp {

namespace {

using wire::TcpSlowKind;

// Records without room, apart from frames to be sent: beyond this many, no record is taken.
constexpr std::size_t frames_waiting_max = 64;

Status set_family(const wire::TcpSlowSetup& setup, IpFamily family, IpInterface& own) {
  const wire::TcpSlowFamily& told = setup.families[static_cast<std::size_t>(family)];
  own = {told.address, told.prefix_length, told.gateway};
  if (own.address.is_unspecified()) return {};
  if (own.address.family() == family && is_unicast(own.address) && own.prefix_length >= 1 &&
      own.prefix_length <= (family == IpFamily::v4 ? 32 : 128))
    return {};
  return fail(Error::protocol, "an address of {}/{}", text_of(own.address), own.prefix_length);
}

FlowOptions options_with(std::uint8_t traffic_class) noexcept {
  FlowOptions options;
  options.traffic_class4 = options.traffic_class6 = without_ecn(traffic_class);
  return options;
}

}  // namespace

Result<bool> HostSlowPath::poll(TimeNs now) {
  area_.wake_up();
  OFP_TRY(area_.flush());
  bool worked = false;
  SlowPathArea::Record record;
  for (int count = 0; count < records_of_a_round && area_.waiting() < frames_waiting_max; ++count) {
    OFP_ASSIGN(const bool there, area_.take(record));
    if (!there) break;
    worked = true;
    OFP_TRY(take(record, now));
  }
  if (!stack_) return worked;
  if (stack_->next_due() <= now) {
    stack_->on_time(now);
    worked = true;
  }
  while (stack_->next_change()) {
  }
  return send(now) || worked;
}

bool HostSlowPath::send(TimeNs now) {
  bool worked = false;
  std::array<FrameToSend, 32> frames;
  for (std::size_t count; (count = stack_->transmit(frames, now)) > 0; worked = true)
    for (const FrameToSend& frame : std::span(frames).first(count)) {
      const wire::TcpSlowSend head{frame.tcp_offset, frame.checksum_partial ? 1u : 0u};
      static_cast<void>(
          area_.post_if_room(TcpSlowKind::send, head, Bytes(frame.header.data(), frame.header_bytes), ring_bytes_ / 4));
    }
  return worked;
}

bool HostSlowPath::fall_asleep(TimeNs now) noexcept {
  return area_.waiting() == 0 && !(stack_ && stack_->wants_to_send()) && next_due() > now && area_.fall_asleep();
}

Status HostSlowPath::set_up(const wire::TcpSlowSetup& setup, TimeNs now) {
  if (setup.version != wire::tcp_slow_version)
    return fail(Error::version, "the agent's slow path has version {}, this one {}", setup.version,
                wire::tcp_slow_version);
  StackOptions options;
  OFP_TRY(set_family(setup, IpFamily::v4, options.v4));
  OFP_TRY(set_family(setup, IpFamily::v6, options.v6));
  options.start = {0, 0, 0};  // the agent says all that
  options.hears_routers = false;
  options.secret = {setup.secret[0], setup.secret[1]};
  options.flows_max = setup.flows_max;
  options.half_open_max = setup.half_open_max;
  options.time_wait_max = setup.time_wait_max;
  options.window_max = setup.window_max;
  options.time_wait_ns = static_cast<TimeNs>(setup.time_wait_ns);
  options.syn_cookies = setup.syn_cookies != 0;
  const bool has_v6 = !options.v6.address.is_unspecified();
  if ((options.v4.address.is_unspecified() && !has_v6) || setup.mtu < (has_v6 ? ipv6_mtu_least : 576) ||
      setup.flows_max == 0 || options.time_wait_ns < 0)
    return fail(Error::protocol, "packets of {} bytes, {} flows, or no address", setup.mtu, setup.flows_max);
  PortCapabilities port;
  std::copy(std::begin(setup.mac), std::end(setup.mac), port.mac.begin());
  port.mtu = setup.mtu;
  port.checksum = setup.checksum != 0;
  stack_.emplace(options, port, congestion_control(wire::TcpCongestion::cubic), owner_, now);
  stack_->work_for(*this, static_cast<TimeNs>(setup.cookies_until_ns));
  return {};
}

Status HostSlowPath::take(const SlowPathArea::Record& record, TimeNs now) {
  if (record.kind == TcpSlowKind::setup && !stack_) {
    OFP_ASSIGN(const wire::TcpSlowSetup setup, read_whole<wire::TcpSlowSetup>(record.payload));
    return set_up(setup, now);
  }
  if (!stack_) return fail(Error::protocol, "a record of kind {} before the setup", static_cast<unsigned>(record.kind));
  switch (record.kind) {
    case TcpSlowKind::frame: {
      OFP_ASSIGN(const ReceivedFrame frame, read_frame(record.payload));
      stack_->receive(frame, now);
      return {};
    }
    case TcpSlowKind::listen:
    case TcpSlowKind::stop_listening: {
      OFP_ASSIGN(const wire::TcpSlowListen what, read_whole<wire::TcpSlowListen>(record.payload));
      if (what.port == 0 || what.is_ipv6 > 1) return fail(Error::protocol, "port {} cannot have a listener", what.port);
      const IpFamily family = what.is_ipv6 == 1 ? IpFamily::v6 : IpFamily::v4;
      stack_->stop_listening(family, what.port);
      return record.kind == TcpSlowKind::listen
                 ? stack_->listen(family, what.port, 0, what.receive_bytes, options_with(what.traffic_class))
                 : Status{};
    }
    case TcpSlowKind::time_wait: {
      OFP_ASSIGN(const wire::TcpHandedFlow handed, read_whole<wire::TcpHandedFlow>(record.payload));
      return stack_->take_time_wait(handed, now);
    }
    case TcpSlowKind::connect: {
      OFP_ASSIGN(const wire::TcpSlowConnect what, read_whole<wire::TcpSlowConnect>(record.payload));
      FlowOptions options = options_with(what.traffic_class);
      if (what.wants_ecn != 0) options.congestion = wire::TcpCongestion::dctcp;
      stack_->begin_connect(flow_key(what.key), what.key.attempt, what.key.value, now, options);
      return {};
    }
    case TcpSlowKind::resolve: {
      OFP_ASSIGN(const wire::TcpSlowNeighbour what, read_whole<wire::TcpSlowNeighbour>(record.payload));
      stack_->resolve(what.address, now);
      return {};
    }
    case TcpSlowKind::look:
      return {};
    case TcpSlowKind::abandon:
    case TcpSlowKind::confirmed:
    case TcpSlowKind::declined:
      break;
    default:
      return fail(Error::protocol, "a record of the unknown kind {}", static_cast<unsigned>(record.kind));
  }
  OFP_ASSIGN(const wire::TcpSlowKey key, read_whole<wire::TcpSlowKey>(record.payload));
  if (record.kind == TcpSlowKind::abandon)
    stack_->abandon(flow_key(key), key.attempt, now);
  else
    stack_->adopted(flow_key(key), key.attempt, record.kind == TcpSlowKind::declined, now);
  return {};
}

void HostSlowPath::adopt(const wire::TcpHandedFlow& flow, const ReceivedFrame* frame) {
  if (frame == nullptr) return area_.post(TcpSlowKind::adopt, flow);
  const wire::TcpSlowFrame head{frame->checksum_verified ? 1u : 0u};
  const Bytes parts[] = {{reinterpret_cast<const std::byte*>(&flow), sizeof flow},
                         {reinterpret_cast<const std::byte*>(&head), sizeof head},
                         frame->bytes};
  area_.post_parts(TcpSlowKind::adopt, parts);
}

void HostSlowPath::failed(const FlowKey& key, std::uint32_t attempt, FlowError error) {
  // A flow that ended without an error was begun here only to be handed over.
  const FlowError why = error == FlowError::none ? FlowError::reset : error;
  area_.post(TcpSlowKind::failed, slow_key(key, attempt, static_cast<std::uint64_t>(why)));
}

void HostSlowPath::returned(const ReceivedFrame& frame) {
  area_.post(TcpSlowKind::returned, wire::TcpSlowFrame{frame.checksum_verified ? 1u : 0u}, frame.bytes);
}

void HostSlowPath::neighbour(const IpAddress& address, const MacAddress& mac) {
  wire::TcpSlowNeighbour told{address, {}, 0};
  std::memcpy(told.mac, mac.data(), sizeof told.mac);
  area_.post(TcpSlowKind::neighbour, told);
}

}  // namespace offpath::tcp
