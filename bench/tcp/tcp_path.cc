// A bad network between devices, for TCP's benchmark: frames of the devices on one side reach the device on the other,
// and back, each way through an ImpairedPath. Hardware addresses select the device to which a frame goes back.
//
//   bench_tcp_path DEVICE[,DEVICE...] DEVICE [--loss P] [--loss-burst N] [--duplicate P] [--reorder P] [--reorder-us N]
//                  [--jitter-us N] [--delay-us N] [--mbit N] [--queue-bytes N] [--seed N]
//
// Prints "ready", and relays until it is killed.
#include <poll.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "tcp/port/packet_port.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/segmentation.h"
#include "testing/tcp/impaired_path.h"

namespace offpath::bench {
namespace {

using tcp::ImpairedPath;
using tcp::MacAddress;
using tcp::PacketPort;

struct Arguments {
  std::vector<std::string> near;
  std::string far;
  tcp::Impairments impairments{};
  std::uint64_t seed = 1;
};

Result<Arguments> parse(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0)
    return fail(Error::invalid, "DEVICE[,DEVICE...] DEVICE, then options with a value each, are expected");
  Arguments arguments;
  for (std::string_view names = argv[1]; !names.empty();) {
    const std::size_t comma = names.find(',');
    arguments.near.emplace_back(names.substr(0, comma));
    names = comma == names.npos ? std::string_view() : names.substr(comma + 1);
  }
  arguments.far = argv[2];
  for (int i = 3; i < argc; i += 2) {
    const std::string_view option = argv[i];
    char* end = nullptr;
    const double value = std::strtod(argv[i + 1], &end);
    if (end == argv[i + 1] || *end != '\0' || value < 0)
      return fail(Error::invalid, "{} {}: a number is expected", option, argv[i + 1]);
    if (option == "--loss")
      arguments.impairments.loss = value;
    else if (option == "--loss-burst")
      arguments.impairments.loss_burst = static_cast<std::uint32_t>(std::max(value, 1.0));
    else if (option == "--duplicate")
      arguments.impairments.duplicate = value;
    else if (option == "--reorder")
      arguments.impairments.reorder = value;
    else if (option == "--reorder-us")
      arguments.impairments.reorder_ns = static_cast<TimeNs>(std::max(value, 1.0) * microsecond_ns);
    else if (option == "--jitter-us")
      arguments.impairments.jitter_ns = static_cast<TimeNs>(value * microsecond_ns);
    else if (option == "--delay-us")
      arguments.impairments.delay_ns = static_cast<TimeNs>(value * microsecond_ns);
    else if (option == "--mbit")
      arguments.impairments.bytes_per_second = static_cast<std::uint64_t>(value * 1e6 / 8);
    else if (option == "--queue-bytes")
      arguments.impairments.queue_bytes = static_cast<std::uint64_t>(value);
    else if (option == "--seed")
      arguments.seed = static_cast<std::uint64_t>(value);
    else
      return fail(Error::invalid, "{} is not an option", option);
  }
  return arguments;
}

class Relay {
 public:
  [[nodiscard]] static Result<Relay> open(const Arguments& arguments) {
    Relay relay(arguments);
    for (const std::string& name : arguments.near) {
      OFP_ASSIGN(auto port, PacketPort::open_interface(name, std::nullopt));
      relay.near_.push_back(std::move(port));
    }
    OFP_ASSIGN(relay.far_, PacketPort::open_interface(arguments.far, std::nullopt));
    return relay;
  }

  void run() {
    std::vector<pollfd> waits;
    for (const auto& port : near_) waits.push_back({port->wait_descriptor(), POLLIN, 0});
    waits.push_back({far_->wait_descriptor(), POLLIN, 0});
    for (;;) {
      const TimeNs now = monotonic_ns();
      take_in_turn(now);
      take(*far_, to_near_, now, {}, frames_max);
      give(now);
      const TimeNs due = std::min(to_far_.next_due(), to_near_.next_due());
      const TimeNs left = due == never ? second_ns : std::max<TimeNs>(due - monotonic_ns(), 0);
      const timespec wait{static_cast<time_t>(left / second_ns), static_cast<long>(left % second_ns)};
      ::ppoll(waits.data(), waits.size(), &wait, nullptr);
    }
  }

 private:
  static constexpr std::size_t frames_max = 64;

  explicit Relay(const Arguments& arguments)
      : to_far_(arguments.impairments, arguments.seed), to_near_(arguments.impairments, arguments.seed + 1) {}

  // Frame by frame from each device, a different one first each time: early frames find room in the queue, so a device
  // that always came first would get more of it.
  void take_in_turn(TimeNs now) {
    first_ = (first_ + 1) % near_.size();
    std::size_t empty = 0;
    for (std::size_t taken = 0; taken < frames_max * near_.size() && empty < near_.size(); ++taken) {
      const std::size_t i = (first_ + taken) % near_.size();
      empty = take(*near_[i], to_far_, now, i, 1) == 0 ? empty + 1 : 0;
    }
  }

  std::size_t take(PacketPort& port, ImpairedPath& path, TimeNs now, std::optional<std::size_t> near,
                   std::size_t most) {
    std::array<tcp::ReceivedFrame, frames_max> frames;
    const std::size_t count = port.receive(std::span(frames).first(most), now);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::byte> bytes(frames[i].bytes.begin(), frames[i].bytes.end());
      if (bytes.size() < tcp::ethernet_header_bytes) continue;
      if (near) is_at_[tcp::read_ethernet_header(bytes.data()).source] = *near;
      if (frames[i].checksum_verified) tcp::complete_tcp_checksum(bytes);
      path.push(std::move(bytes), now);
    }
    return count;
  }

  static void send(PacketPort& port, Bytes bytes, TimeNs now) {
    tcp::FrameToSend frame;
    frame.payload[0] = bytes;
    static_cast<void>(port.transmit(std::span(&frame, 1), now));  // a frame that is not taken is lost, like any other
  }

  void give(TimeNs now) {
    std::vector<std::byte> bytes;
    while (to_far_.pop(bytes, now)) send(*far_, bytes, now);
    while (to_near_.pop(bytes, now)) {
      const auto known = is_at_.find(tcp::read_ethernet_header(bytes.data()).target);
      for (std::size_t i = 0; i < near_.size(); ++i)
        if (known == is_at_.end() || known->second == i) send(*near_[i], bytes, now);
    }
  }

  ImpairedPath to_far_, to_near_;
  std::size_t first_ = 0;
  std::vector<std::unique_ptr<PacketPort>> near_;
  std::unique_ptr<PacketPort> far_;
  std::map<MacAddress, std::size_t> is_at_;
};

Status run(int argc, char** argv) {
  OFP_ASSIGN(const Arguments arguments, parse(argc, argv));
  OFP_ASSIGN(Relay relay, Relay::open(arguments));
  std::puts("ready");
  std::fflush(stdout);
  relay.run();
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  if (const auto done = offpath::bench::run(argc, argv); !done) {
    fmt::print(stderr, "bench_tcp_path: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
