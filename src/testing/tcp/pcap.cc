#include "testing/tcp/pcap.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <cerrno>

namespace offpath::tcp {
namespace {

struct FileHeader {
  std::uint32_t magic = 0xa1b23c4d;  // nanoseconds
  std::uint16_t major = 2, minor = 4;
  std::uint32_t zone = 0, accuracy = 0;
  std::uint32_t bytes_max = 262'144;
  std::uint32_t link = 1;  // Ethernet
};
static_assert(sizeof(FileHeader) == 24);

struct FrameHeader {
  std::uint32_t seconds, nanoseconds, captured, length;
};
static_assert(sizeof(FrameHeader) == 16);

}  // namespace

Result<PcapWriter> PcapWriter::create(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "open " + path);
  const FileHeader header;
  if (::write(file.get(), &header, sizeof header) != sizeof header) return fail_errno(errno, "write " + path);
  return PcapWriter(std::move(file));
}

void PcapWriter::write(Bytes frame, TimeNs now) noexcept {
  if (!file_) return;
  const auto bytes = static_cast<std::uint32_t>(frame.size());
  FrameHeader header{static_cast<std::uint32_t>(now / second_ns), static_cast<std::uint32_t>(now % second_ns), bytes,
                     bytes};
  const iovec parts[] = {{&header, sizeof header}, {const_cast<std::byte*>(frame.data()), frame.size()}};
  if (::writev(file_.get(), parts, 2) != static_cast<ssize_t>(sizeof header + frame.size())) file_.reset();
}

}  // namespace offpath::tcp
