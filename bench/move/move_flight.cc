// Arrow Flight DoPut on loopback compared with a move, 64 MiB: from a record batch in this program to a frame held by
// the other side. Peers are a C++ server (this program with --serve) and a Python one (offpath.bench.flight_server,
// whose address is given by --python-server); the client is C++. Each keeps one DoPut stream open and acknowledges
// every put. The claim is about one record batch that arrives as one, as in a move; the best division into parts for
// Flight is also shown.
#include <arrow/api.h>
#include <arrow/flight/api.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrow_result.h"
#include "base/fd.h"
#include "host_program.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

namespace flight = arrow::flight;

constexpr std::uint64_t put_bytes = std::uint64_t(64) << 20;
constexpr std::uint32_t columns_count = 4;
constexpr std::uint64_t rows_count = put_bytes / columns_count / sizeof(double);

// Holds the batches of the last put; a put ends with a chunk that carries metadata, and is then answered.
class HoldingServer final : public flight::FlightServerBase {
 public:
  arrow::Status DoPut(const flight::ServerCallContext&, std::unique_ptr<flight::FlightMessageReader> reader,
                      std::unique_ptr<flight::FlightMetadataWriter> writer) override {
    std::vector<std::shared_ptr<arrow::RecordBatch>> arriving;
    const auto answer = arrow::Buffer::FromString("stored");
    for (;;) {
      ARROW_ASSIGN_OR_RAISE(flight::FlightStreamChunk chunk, reader->Next());
      if (chunk.data == nullptr && chunk.app_metadata == nullptr) return arrow::Status::OK();
      if (chunk.data != nullptr) arriving.push_back(std::move(chunk.data));
      if (chunk.app_metadata != nullptr) {
        held_ = std::exchange(arriving, {});
        ARROW_RETURN_NOT_OK(writer->WriteMetadata(*answer));
      }
    }
  }

 private:
  std::vector<std::shared_ptr<arrow::RecordBatch>> held_;
};

Status serve(int core) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  OFP_TRY(pin_to_core(core));
  ARROW_ASSIGN(const flight::Location location, flight::Location::ForGrpcTcp("127.0.0.1", 0));
  HoldingServer server;
  ARROW_TRY(server.Init(flight::FlightServerOptions(location)));
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  ARROW_TRY(server.Serve());
  return {};
}

// This program as a server, in a process that ends with this object.
class ServerProcess {
 public:
  static Result<ServerProcess> start(int core) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe2");
    Fd read_end(ends[0]), write_end(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    std::string program = "/proc/self/exe", flag = "--serve", core_text = std::to_string(core);
    char* argv[] = {program.data(), flag.data(), core_text.data(), nullptr};
    pid_t pid = -1;
    const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return fail_errno(error, "posix_spawn");
    ServerProcess process(pid);
    write_end.reset();
    char text[16] = {};
    if (read(read_end.get(), text, sizeof text - 1) <= 0)
      return fail(Error::peer_lost, "the Flight server ended at once");
    process.address_ = fmt::format("grpc://127.0.0.1:{}", std::atoi(text));
    return process;
  }
  ServerProcess(ServerProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), address_(std::move(other.address_)) {}
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess() {
    if (pid_ < 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  explicit ServerProcess(pid_t pid) noexcept : pid_(pid) {}
  pid_t pid_;
  std::string address_;
};

class Putter {
 public:
  static Result<Putter> connect(const std::string& address, std::shared_ptr<arrow::Schema> schema) {
    Putter putter;
    ARROW_ASSIGN(const flight::Location location, flight::Location::Parse(address));
    ARROW_ASSIGN(putter.client_, flight::FlightClient::Connect(location));
    ARROW_ASSIGN(putter.put_, putter.client_->DoPut(flight::FlightDescriptor::Path({"bench"}), schema));
    return putter;
  }

  // Nanoseconds from the first write to the server's answer.
  Result<double> put(const arrow::RecordBatch& batch) {
    const auto last = arrow::Buffer::FromString("last");
    const std::uint64_t start = ticks();
    for (std::int64_t row = 0; row < batch.num_rows(); row += chunk_rows_) {
      const auto chunk = batch.Slice(row, chunk_rows_);
      if (row + chunk_rows_ >= batch.num_rows()) {
        ARROW_TRY(put_.writer->WriteWithMetadata(*chunk, last));
      } else {
        ARROW_TRY(put_.writer->WriteRecordBatch(*chunk));
      }
    }
    std::shared_ptr<arrow::Buffer> answer;
    ARROW_TRY(put_.reader->ReadMetadata(&answer));
    if (answer == nullptr) return fail(Error::peer_lost, "Flight: the stream ended before the answer");
    return double(ticks() - start) * ns_per_tick();
  }

  // Puts are one record batch, or `parts` of them. Returns the median nanoseconds of some puts.
  Result<double> try_parts(const arrow::RecordBatch& batch, std::int64_t parts, std::size_t turns) {
    chunk_rows_ = batch.num_rows() / parts;
    OFP_ASSIGN(const auto costs_ns, run_turns(turns, 1, [&] { return put(batch); }));
    return median(costs_ns);
  }
  [[nodiscard]] std::int64_t chunk_rows() const noexcept { return chunk_rows_; }
  void set_chunk_rows(std::int64_t rows) noexcept { chunk_rows_ = rows; }

 private:
  std::unique_ptr<flight::FlightClient> client_;
  flight::FlightClient::DoPutResult put_;
  std::int64_t chunk_rows_ = std::int64_t(rows_count);
};

// The same announced memory as Arrow arrays and as columns of a send.
struct Payload {
  Sources sources;
  std::shared_ptr<arrow::Schema> schema;

  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> next_batch() {
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const void* column : sources.next()) {
      auto buffer =
          std::make_shared<arrow::Buffer>(static_cast<const std::uint8_t*>(column), put_bytes / columns_count);
      arrays.push_back(std::make_shared<arrow::DoubleArray>(std::int64_t(rows_count), std::move(buffer)));
    }
    return arrow::RecordBatch::Make(schema, std::int64_t(rows_count), std::move(arrays));
  }
};

Result<Payload> make_payload(const Channel& channel) {
  OFP_ASSIGN(Sources sources, Sources::make(channel, put_bytes / columns_count, columns_count, 2 * put_bytes));
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (std::uint32_t c = 0; c < columns_count; ++c) {
    fields.push_back(arrow::field(fmt::format("column{}", c), arrow::float64(), false));
  }
  return Payload{std::move(sources), arrow::schema(std::move(fields))};
}

// A server, and the number of record batches for each put.
struct Peer {
  std::string name;
  double tried_ns = not_measured;
  Putter* putter = nullptr;
  std::int64_t chunk_rows = 0;
};

struct Servers {
  Putter cpp;
  std::optional<Putter> python;
};

Result<Servers> connect_servers(const std::string& cpp_server, std::string_view python_server, const Payload& payload) {
  OFP_ASSIGN(Putter cpp, Putter::connect(cpp_server, payload.schema));
  Servers servers{std::move(cpp), std::nullopt};
  if (!python_server.empty()) {
    OFP_ASSIGN(servers.python, Putter::connect(std::string(python_server), payload.schema));
  }
  return servers;
}

// The fastest combination of server and division.
Result<Peer> choose_peer(Servers& servers, std::initializer_list<std::int64_t> cuts, Payload& payload,
                         const Options& options) {
  const auto batch = payload.next_batch();
  Peer best;
  for (Putter* putter : {&servers.cpp, servers.python ? &*servers.python : nullptr}) {
    if (putter == nullptr) continue;
    for (const std::int64_t parts : cuts) {
      OFP_ASSIGN(const double cost_ns, putter->try_parts(*batch, parts, options.quick ? 1 : 5));
      if (best.putter != nullptr && cost_ns >= best.tried_ns) continue;
      best = {fmt::format("Flight DoPut, {} server, {} x {} KiB", putter == &servers.cpp ? "C++" : "Python", parts,
                          put_bytes / std::uint64_t(parts) >> 10),
              cost_ns, putter, putter->chunk_rows()};
    }
  }
  best.putter->set_chunk_rows(best.chunk_rows);
  if (!servers.python) best.name += " (no Python server given)";
  return best;
}

Status measure_against(const std::string& claim_name, Target target, const std::string& agent, std::string_view link,
                       const ServerProcess& server, const Options& options, Report& report) {
  const auto channel = Channel::connect(agent);
  if (!channel) {
    report.add_unmeasured(claim_name, "GB/s", target, channel.error().message);
    return {};
  }
  OFP_ASSIGN(const ofp_channel_info info, channel->info());
  if (info.link != link) {
    report.add_unmeasured(claim_name, "GB/s", target, fmt::format("the link is {}, not {}", info.link, link));
    return {};
  }
  OFP_ASSIGN(Payload payload, make_payload(*channel));
  OFP_ASSIGN(Servers servers, connect_servers(server.address(), options.other("--python-server"), payload));
  OFP_ASSIGN(Stream stream, Stream::open(*channel, {.name = fmt::format("bench-flight-{}", link),
                                                    .columns = columns_count,
                                                    .rows_max = rows_count}));
  const auto move = [&]() -> Result<double> {
    OFP_ASSIGN(const Stream::Posted posted, stream.post(payload.sources.next(), rows_count));
    OFP_TRY(stream.wait_stored(posted.ticket));  // sleeps like the Flight client
    const std::uint64_t stored_ticks = ticks();
    sleep_ns(agent_settles_ns);
    return double(stored_ticks - posted.entered_ticks) * ns_per_tick();
  };
  const auto contest = [&](const std::string& name, std::optional<Target> limit,
                           std::initializer_list<std::int64_t> cuts) -> Status {
    OFP_ASSIGN(const Peer peer, choose_peer(servers, cuts, payload, options));
    const auto put = [&]() -> Result<double> { return peer.putter->put(*payload.next_batch()); };
    OFP_ASSIGN(const Comparison result, run_pairs(options.pairs(), move, put));
    report.add(Claim{.claim = name,
                     .value = double(put_bytes) / result.subject,
                     .unit = "GB/s",
                     .peer = peer.name,
                     .peer_value = double(put_bytes) / result.peer,
                     .ratio = result.ratio,
                     .interval = result.interval,
                     .pairs = result.pairs,
                     .target = limit});
    return {};
  };
  OFP_TRY(contest(claim_name, target, {1, 4, 16, 64, 256}));
  return contest(claim_name + "_in_one", std::nullopt, {1});
}

Status run(const Options& options, Report& report) {
  if (!options.other("--serve").empty()) return serve(std::atoi(std::string(options.other("--serve")).c_str()));
  OFP_ASSIGN(const ServerProcess server, ServerProcess::start(options.agent_core));
  OFP_TRY(pin_to_core(options.host_core));
  OFP_TRY(measure_against("move.vs_flight_doput", ratio_at_least(2), options.agent, "local", server, options, report));
  const std::string tcp_agent(options.other("--tcp-agent"));
  if (tcp_agent.empty()) {
    report.add_unmeasured("move.tcp_vs_flight_doput", "GB/s", ratio_at_least(1),
                          "no agent listens on TCP (--tcp-agent)");
    return {};
  }
  return measure_against("move.tcp_vs_flight_doput", ratio_at_least(1), tcp_agent, "tcp", server, options, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "move", {"--serve", "--python-server", "--tcp-agent"},
                                  offpath::bench::run);
}
