#include "agent/connections/linked_programs.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "service/token.h"

namespace offpath::agent {

// Pages are taken as they are used.
class LinkedPrograms::Memory {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Memory>> make(std::uint64_t bytes) {
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of {} bytes", bytes));
    return std::shared_ptr<Memory>(new Memory({static_cast<std::byte*>(data), bytes}));
  }
  ~Memory() { munmap(bytes_.data(), bytes_.size()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] MutableBytes bytes() const noexcept { return bytes_; }

 private:
  explicit Memory(MutableBytes bytes) noexcept : bytes_(bytes) {}
  MutableBytes bytes_;
};

Result<tcp::TcpService::Memory> LinkedPrograms::open(std::uint64_t program, channel::AgentEnd& channel,
                                                     wire::RegionId region, const wire::TcpAreaLayout& layout) {
  OFP_ASSIGN(std::shared_ptr<Memory> memory, Memory::make(layout.bytes));
  programs_.emplace(program,
                    Program{&channel, region, memory, std::make_shared<tcp::AreaMirror>(layout, memory->bytes())});
  return [memory] { return memory->bytes(); };
}

void LinkedPrograms::close(std::uint64_t program) {
  if (const auto gone = programs_.extract(program)) past_ += gone.mapped().mirror->counters();
  std::erase(finishing_, program);
}

void LinkedPrograms::finish(std::uint64_t program) {
  programs_.at(program).mirror->finish();
  finishing_.push_back(program);
}

std::vector<std::uint64_t> LinkedPrograms::take_finished() {
  std::vector<std::uint64_t> finished;
  for (const std::uint64_t program : finishing_)
    if (programs_.at(program).mirror->finished()) finished.push_back(program);
  for (const std::uint64_t program : finished) std::erase(finishing_, program);
  return finished;
}

tcp::AreaMirrorCounters LinkedPrograms::counters() const {
  tcp::AreaMirrorCounters sum = past_;
  for (const auto& [number, program] : programs_) sum += program.mirror->counters();
  return sum;
}

void LinkedPrograms::look(std::uint64_t program, TimeNs now) {
  if (const auto at = programs_.find(program); at != programs_.end()) at->second.mirror->look(now);
}

void LinkedPrograms::wake(std::uint64_t program, std::uint32_t process) {
  if (const auto at = programs_.find(program); at != programs_.end()) at->second.mirror->wake(process);
}

void LinkedPrograms::on_transfer(std::uint64_t token, Status status, TimeNs now) {
  auto ended = transfers_.extract(token);
  if (!ended) return;
  const std::uint64_t number = ended.mapped().program;
  const auto at = programs_.find(number);
  if (at == programs_.end()) return;
  Program& program = at->second;
  if (status) status = program.mirror->done(ended.mapped().token, now);
  if (!status) {
    ended_.push_back({number, std::move(status).error()});
    return;
  }
  if (program.mirror->take_wake()) program.channel->link().wake();
  carry(number, program);
}

bool LinkedPrograms::poll(TimeNs now) {
  bool worked = false;
  for (auto& [number, program] : programs_) {
    if (program.channel->closed()) continue;
    program.mirror->poll(now);
    worked |= carry(number, program);
  }
  return worked || !ended_.empty();
}

bool LinkedPrograms::carry(std::uint64_t number, Program& program) {
  std::vector<tcp::AreaMirror::Transfer> begun = program.mirror->transfers();
  for (const tcp::AreaMirror::Transfer& each : begun) {
    const std::uint64_t token = service::token_of(service::ServiceId::tcp, next_token_++);
    transfers_.emplace(token, Transfer{number, each.token, program.memory, program.mirror});
    if (each.writes) {
      std::vector<link::WritePiece> pieces;
      for (const auto& [offset, memory, length] : each.pieces)
        pieces.push_back({program.region, offset, memory, length});
      program.channel->push(token, pieces);
      continue;
    }
    std::vector<link::ReadPiece> pieces;
    for (const auto& [offset, memory, length] : each.pieces)
      pieces.push_back({program.region, 0, offset, memory, length, true});
    program.channel->fetch(token, pieces);
  }
  return !begun.empty();
}

bool LinkedPrograms::may_sleep() const {
  for (const auto& [number, program] : programs_)
    if (!program.mirror->may_sleep()) return false;
  return ended_.empty();
}

}  // namespace offpath::agent
