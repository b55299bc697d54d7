#include "machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/bytes.h"
#include "base/fd.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace offpath::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of "name : value" in a file such as /proc/cpuinfo; empty if it is missing.
std::string field_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

std::string proc_path(pid_t pid, std::string_view file) {
  return pid == 0 ? fmt::format("/proc/self/{}", file) : fmt::format("/proc/{}/{}", pid, file);
}

}  // namespace

std::uint64_t last_level_cache_bytes() {
  std::uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const auto text = first_line(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    if (text.empty()) continue;
    std::uint64_t bytes = std::strtoull(text.c_str(), nullptr, 10);
    if (text.back() == 'K') bytes <<= 10;
    if (text.back() == 'M') bytes <<= 20;
    largest = std::max(largest, bytes);
  }
  return largest != 0 ? largest : std::uint64_t(32) << 20;
}

std::uint64_t beyond_cache_bytes() { return 2 * last_level_cache_bytes(); }

std::string machine_description() {
  std::string model = field_of("/proc/cpuinfo", "model name");
  utsname system{};
  uname(&system);
  if (model.empty()) model = system.machine;
  // Clouds name all generations alike.
  if (const auto family = field_of("/proc/cpuinfo", "cpu family"); !family.empty())
    model += fmt::format(" (family {}, model {})", family, field_of("/proc/cpuinfo", "model\t"));
  const auto memory_bytes = std::uint64_t(sysconf(_SC_PHYS_PAGES)) * std::uint64_t(sysconf(_SC_PAGESIZE));
  return fmt::format("{}, {} cores, {} MiB cache, {} {}, {} GiB", model, sysconf(_SC_NPROCESSORS_ONLN),
                     last_level_cache_bytes() >> 20, system.sysname, system.release, (memory_bytes + (1u << 29)) >> 30);
}

Status pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return fail_errno(errno, fmt::format("sched_setaffinity({})", core));
  return {};
}

Result<std::int64_t> process_cpu_ns(pid_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  if (pid != 0) {
    if (const int error = clock_getcpuclockid(pid, &clock); error != 0) {
      return fail_errno(error, fmt::format("clock_getcpuclockid({})", pid));
    }
  }
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return fail_errno(errno, "clock_gettime");
  return used.tv_sec * second_ns + used.tv_nsec;
}

Result<std::uint64_t> process_sleeps(pid_t pid) {
  std::error_code failed;
  std::uint64_t sleeps = 0;
  const std::string tasks = proc_path(pid, "task");
  for (std::filesystem::directory_iterator each(tasks, failed), end; !failed && each != end; each.increment(failed)) {
    const std::string text = field_of(each->path() / "status", "voluntary_ctxt_switches");
    sleeps += std::strtoull(text.c_str(), nullptr, 10);
  }
  if (failed) return fail(Error::not_found, "{}: {}", tasks, failed.message());
  return sleeps;
}

Result<std::uint64_t> process_resident_bytes(pid_t pid) {
  const auto path = proc_path(pid, "status");
  const auto text = field_of(path, "VmRSS");
  if (text.empty()) return fail(Error::not_found, "VmRSS in {}", path);
  return std::strtoull(text.c_str(), nullptr, 10) << 10;
}

std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  unsigned core;
  return __rdtscp(&core);
#elif defined(__aarch64__)
  std::uint64_t now;
  asm volatile("isb; mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return std::uint64_t(monotonic_ns());
#endif
}

double ns_per_tick() {
#if defined(__x86_64__)
  static const double ratio = [] {
    const TimeNs start_ns = monotonic_ns();
    const std::uint64_t start = ticks();
    while (monotonic_ns() - start_ns < 20 * millisecond_ns) {
    }
    const TimeNs end_ns = monotonic_ns();
    return double(end_ns - start_ns) / double(ticks() - start);
  }();
  return ratio;
#elif defined(__aarch64__)
  std::uint64_t hertz;
  asm("mrs %0, cntfrq_el0" : "=r"(hertz));
  return 1e9 / double(hertz);
#else
  return 1;
#endif
}

void sleep_ns(TimeNs duration_ns) noexcept {
  timespec rest{duration_ns / second_ns, duration_ns % second_ns};
  while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

Result<Pages> Pages::map(std::uint64_t length_bytes, Kind kind) {
  const std::uint64_t rounded = align_up(std::max<std::uint64_t>(length_bytes, 1), page_bytes);
  Fd file;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (kind == Kind::shared_file) {
    file = Fd(memfd_create("offpath-bench", MFD_CLOEXEC));
    if (!file) return fail_errno(errno, "memfd_create");
    if (ftruncate(file.get(), off_t(rounded)) != 0) return fail_errno(errno, "ftruncate");
    flags = MAP_SHARED;
  }
  void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, flags, file ? file.get() : -1, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of {} bytes", rounded));
  Pages pages;
  pages.data_ = static_cast<std::byte*>(data);
  pages.length_bytes_ = rounded;
  // Distinct contents, so that neither page merging nor a zero page makes a read cheaper than it is.
  for (std::uint64_t offset = 0; offset < rounded; offset += page_bytes) {
    store(pages.data_ + offset, offset * 0x9e3779b97f4a7c15u + 1);
  }
  return pages;
}

Pages& Pages::operator=(Pages&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, length_bytes_);
    data_ = std::exchange(other.data_, nullptr);
    length_bytes_ = std::exchange(other.length_bytes_, 0);
  }
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, length_bytes_);
}

Result<RotatedBuffers> RotatedBuffers::make(std::uint64_t buffer_bytes, std::uint64_t working_set_bytes,
                                            std::uint64_t misalign_bytes) {
  RotatedBuffers buffers;
  buffers.stride_bytes_ = align_up(buffer_bytes + misalign_bytes, page_bytes);
  buffers.misalign_bytes_ = misalign_bytes;
  const std::uint64_t wanted = (working_set_bytes + buffers.stride_bytes_ - 1) / buffers.stride_bytes_;
  buffers.count_ = std::size_t(std::max<std::uint64_t>(wanted, 1));
  OFP_ASSIGN(buffers.pages_, Pages::map(buffers.stride_bytes_ * buffers.count_));
  return buffers;
}

std::byte* RotatedBuffers::at(std::size_t index) const noexcept {
  return pages_.data() + (index % count_) * stride_bytes_ + misalign_bytes_;
}

std::byte* RotatedBuffers::next() noexcept { return at(turn_++); }

}  // namespace offpath::bench
