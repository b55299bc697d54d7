#include "tcp/stack/stage_trace.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/fd.h"

namespace offpath::tcp {

Result<std::unique_ptr<StageTrace>> StageTrace::create(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "tcp.trace_file " + path);
  if (::ftruncate(fd.get(), file_bytes) != 0) return fail_errno(errno, "the size of " + path);
  void* const memory = ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "mmap of " + path);
  std::unique_ptr<StageTrace> made(new StageTrace(static_cast<std::byte*>(memory)));
  store(made->memory_, magic);
  store(made->memory_ + 8, capacity);
  return made;
}

StageTrace::~StageTrace() { ::munmap(memory_, file_bytes); }

void StageTrace::note(Stage stage) noexcept {
  store(memory_ + records_at + count_ % capacity * sizeof(Record), Record{monotonic_ns(), stage});
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_ + count_at))
      .store(++count_, std::memory_order_release);
}

}  // namespace offpath::tcp
