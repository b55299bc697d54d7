// Memory: the agent's need beyond its frames, and the host library's addition to a program.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "host_program.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t mib = std::uint64_t(1) << 20;

// Shared memory of the whole machine: the agent's frames are memfds, and unmapped ones are in no process's resident
// memory.
std::uint64_t shared_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "Shmem: %llu kB", &kib) == 1) return std::uint64_t(kib) << 10;
  }
  return 0;
}

// The part of a process's resident memory that is not shared memory.
Result<std::uint64_t> private_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  std::uint64_t resident = 0, shared = 0;
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %llu kB", &kib) == 1) resident = std::uint64_t(kib) << 10;
    if (std::sscanf(line.c_str(), "RssShmem: %llu kB", &kib) == 1) shared = std::uint64_t(kib) << 10;
  }
  if (resident == 0) return fail(Error::not_found, "process {} has no resident memory to be read", pid);
  return resident - shared;
}

// Private memory of the agent plus all shared memory added since the start of the sends, minus the payload. Shared
// memory of other programs in that time counts against the agent.
Status measure_agent(const Channel& channel, const Options& options, Report& report) {
  const std::uint64_t payload_bytes = std::min(options.size_max_bytes, 1024 * mib);
  const std::uint64_t frame_bytes = std::min(payload_bytes, 16 * mib);
  constexpr std::uint32_t columns = 16;
  const std::uint64_t rows = frame_bytes / columns / sizeof(double);
  const double limit_mib = 64 + 0.05 * double(payload_bytes) / double(mib);
  OFP_ASSIGN(const ofp_channel_info info, channel.info());
  const auto before = private_bytes(pid_t(info.agent_pid));
  if (info.agent_pid == 0 || !before) {
    report.add_unmeasured("move.agent_rss_over_payload", "MiB", value_at_most(limit_mib, "MiB"),
                          "the agent's process is not on this machine");
    return {};
  }
  OFP_ASSIGN(Sources sources, Sources::make(channel, frame_bytes / columns, columns, frame_bytes));
  const std::uint64_t shared_before = shared_memory_bytes();
  OFP_ASSIGN(Stream stream,
             Stream::open(channel, {.name = "bench-memory", .columns = columns, .rows_max = rows, .keep = 0}));
  for (std::uint64_t sent = 0; sent < payload_bytes; sent += frame_bytes) {
    OFP_ASSIGN(const Stream::Posted posted, stream.post(sources.next(), rows));
    OFP_TRY(stream.wait_stored(posted.ticket));
  }
  OFP_ASSIGN(const std::uint64_t private_after, private_bytes(pid_t(info.agent_pid)));
  const std::uint64_t shared_after = shared_memory_bytes();
  const double beyond = double(private_after) + double(shared_after) - double(shared_before) - double(payload_bytes);
  report.add(Claim{.claim = "move.agent_rss_over_payload",
                   .value = beyond / double(mib),
                   .unit = "MiB",
                   .peer = fmt::format("payload {} MiB", payload_bytes / mib),
                   .target = value_at_most(limit_mib, "MiB")});
  return {};
}

// libc, libstdc++ and OpenSSL, and the library itself.
bool is_expected(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view known : {"libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "libssl.so", "libcrypto.so",
                                       "ld-linux", "libdl.so", "libpthread.so", "librt.so", "liboffpath.so"}) {
    if (name.starts_with(known)) return true;
  }
  return false;
}

struct HostMemory {
  double added_bytes = 0;
  int threads = 0;
  int libraries = 0;
  std::string library_names;
};

Result<HostMemory> run_host_memory(const Options& options) {
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&ofp_connect), &library) == 0) return fail(Error::not_found, "liboffpath's path");
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bench_host_memory";
  const char* environment = std::getenv("OFFPATH_AGENT");
  const std::string address = !options.agent.empty() ? options.agent : environment != nullptr ? environment : "";
  const std::string command = fmt::format("'{}' '{}' '{}'", program.string(), library.dli_fname, address);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return fail_errno(errno, "popen");
  std::string output;
  for (char buffer[512]; std::fgets(buffer, sizeof buffer, pipe) != nullptr;) output += buffer;
  if (pclose(pipe) != 0) return fail(Error::io, "{} failed", command);
  std::istringstream lines(output);
  unsigned long long before = 0, after = 0;
  int threads_before = 0, threads_after = 0;
  HostMemory memory;
  if (!(lines >> before >> after >> threads_before >> threads_after)) return fail(Error::io, "{}: {}", command, output);
  memory.added_bytes = double(after) - double(before);
  memory.threads = threads_after - threads_before;
  for (std::string path; lines >> path;) {
    if (is_expected(path)) continue;
    ++memory.libraries;
    memory.library_names += " " + path.substr(path.rfind('/') + 1);
  }
  return memory;
}

Status measure_host(const Options& options, Report& report) {
  const auto memory = run_host_memory(options);
  const Target rss = value_at_most(4, "MiB"), threads = value_at_most(0, "threads"),
               libraries = value_at_most(0, "libraries");
  if (!memory) {
    report.add_unmeasured("move.host_library_rss", "MiB", rss, memory.error().message);
    report.add_unmeasured("move.host_library_threads", "threads", threads, memory.error().message);
    report.add_unmeasured("move.host_library_libraries", "libraries", libraries, memory.error().message);
    return {};
  }
  report.add(Claim{
      .claim = "move.host_library_rss", .value = memory->added_bytes / double(mib), .unit = "MiB", .target = rss});
  report.add(Claim{
      .claim = "move.host_library_threads", .value = double(memory->threads), .unit = "threads", .target = threads});
  report.add(Claim{.claim = "move.host_library_libraries",
                   .value = double(memory->libraries),
                   .unit = "libraries",
                   .target = libraries,
                   .why = memory->library_names.empty() ? "" : "loaded:" + memory->library_names});
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  {
    OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
    OFP_TRY(measure_agent(channel, options, report));
  }
  return measure_host(options, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) { return offpath::bench::run_main(argc, argv, "move", {}, offpath::bench::run); }
