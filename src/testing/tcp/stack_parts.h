// The parts of a stack, each usable alone by a test: no network, and an owner that records its events.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tcp/flow/flows.h"
#include "tcp/flow/positions.h"
#include "tcp/segment/ethernet.h"
#include "testing/tcp/family.h"

namespace offpath::tcp {

class FakeOwner final : public Owner {
 public:
  std::optional<std::uint64_t> accept(std::uint64_t, FlowId, const FlowKey&) override {
    return accepts ? std::optional<std::uint64_t>(++accepted) : std::nullopt;
  }
  Payload payload(FlowId, std::uint64_t, std::uint64_t position, std::uint32_t bytes) override {
    return {Bytes(sends).subspan(position, bytes), Bytes()};
  }
  void store(FlowId, std::uint64_t, std::uint64_t position, Bytes bytes) override {
    stored.emplace_back(position, bytes.size());
  }

  bool accepts = true;
  std::uint64_t accepted = 0;
  std::vector<std::byte> sends = std::vector<std::byte>(100'000);
  std::vector<std::pair<std::uint64_t, std::size_t>> stored;
};

struct StackParts {
  static inline const IpAddress own = test_address(0x0a000001), peer = test_address(0x0a000002);
  static constexpr MacAddress own_mac{2, 0, 0, 0, 0, 1}, peer_mac{2, 0, 0, 0, 0, 2};
  static inline const FlowKey key{{own, 80}, {peer, 4000}};

  explicit StackParts(const StackOptions& more = {}, std::string_view algorithm = "new_reno")
      : congestion(congestion_control(algorithm).value()),
        context(
            [&] {
              StackOptions options = more;
              set_test_address(options, 0x0a000001);
              return options;
            }(),
            PortCapabilities{own_mac, test_mtu(1500)}, *congestion) {}

  // An established flow, whose own numbers begin at 1000 and the peer's at 5000, without timestamps or SACK.
  Flow& established(TimeNs now, std::uint64_t offered = 0) {
    Flow& flow = *flows.new_flow(key, 7, 65'535, {}, now);
    flow.una = flow.next = Sequence(1000);
    flow.receive_next = flow.ack_sent = Sequence(5000);
    flow.receive_edge = flow.receive_next + 65'535u;
    flow.receive_scale = 0;
    flow.mss = 1000;
    flow.offered = offered;
    take_window(flow, 60'000, Sequence(5000), Sequence(1000));
    context.congestion.begin(flow.congestion, flow.mss, now);
    flows.established(flow, now);
    return flow;
  }
  void know_peer(TimeNs now) { routes.learn(peer, peer_mac, true, now); }

  // The segment that `send` sends, as the peer receives it.
  template <class Send>
  std::vector<Segment> sent(const Send& send) {
    burst.assign(64, FrameToSend{});
    frames.begin(burst);
    send();
    frames.move_strays();
    burst.resize(frames.finish());
    bytes.clear();
    std::vector<Segment> segments;
    for (const FrameToSend& frame : burst) {
      auto& whole = bytes.emplace_back(frame.header.begin(), frame.header.begin() + frame.header_bytes);
      for (const Bytes& part : frame.payload) whole.insert(whole.end(), part.begin(), part.end());
      IpPacket packet;
      Segment segment;
      if (read_ip(read_ethernet_header(whole.data()).type, Bytes(whole).subspan(ethernet_header_bytes), packet) ==
              Drop::none &&
          read_segment(packet, true, segment) == Drop::none)
        segments.push_back(segment);
    }
    return segments;
  }
  // One that the peer sends in order, without payload.
  static Segment segment(const Flow& flow, std::uint16_t flags = flag::ack) {
    Segment made;
    made.key = flow.key;
    made.sequence = flow.receive_next;
    made.acknowledgement = flow.una;
    made.flags = flags;
    made.window = 60'000;
    return made;
  }
  std::uint8_t changes() {
    std::uint8_t all = 0;
    while (const auto change = flows.next_change()) all |= change->what;
    return all;
  }

  std::unique_ptr<const CongestionControl> congestion;
  StackContext context;
  OtherStack other{};
  FakeOwner owner{};
  FrameQueue frames{context};
  Routes routes{context, other, frames, 0};
  Flows flows{context, other, frames, routes, 0};
  std::vector<FrameToSend> burst{};
  std::vector<std::vector<std::byte>> bytes{};
};

}  // namespace offpath::tcp
