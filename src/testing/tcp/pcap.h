// Frames in a file that tcpdump and Wireshark read (the pcap format, with nanoseconds).
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::tcp {

class PcapWriter {
 public:
  [[nodiscard]] static Result<PcapWriter> create(const std::string& path);
  // A frame that cannot be written is left out; the first failure ends the file.
  void write(Bytes frame, TimeNs now) noexcept;

 private:
  explicit PcapWriter(Fd file) noexcept : file_(std::move(file)) {}
  Fd file_;
};

}  // namespace offpath::tcp
