// The processes that compute together. `OneRank` is a single one; MPI's are in ranks_mpi.cc, the only file that uses
// MPI.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "md/ranks/rank_messages.h"

namespace md {

class Ranks : public RankMessages {
 public:
  static constexpr std::size_t begun_max = 8;

  // Over all ranks, in place; the same bits on every rank.
  virtual void sum(std::span<double> numbers) = 0;
  virtual void maximum(std::span<double> numbers) = 0;
  // Begins a maximum over all ranks, which `finish_maximum` waits for: of at most `begun_max` numbers, one at a time.
  virtual void begin_maximum(std::span<const double> numbers) = 0;
  virtual void finish_maximum(std::span<double> numbers) = 0;
  // On rank 0 the bytes of all ranks, in their order; empty elsewhere.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;
  // Sends parts[r] of rank 0 to rank r, and returns this rank's. `parts` has an entry for each rank there, and is
  // ignored elsewhere.
  virtual std::vector<std::byte> scatter(const std::vector<std::vector<std::byte>>& parts) = 0;
  // Sends rank 0's bytes to all ranks.
  virtual void broadcast(std::vector<std::byte>& bytes) = 0;
  // Ends all ranks, including this one: one of them cannot continue, and the others wait for it.
  [[noreturn]] virtual void give_up() = 0;
};

class OneRank : public Ranks {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int count() const override { return 1; }
  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override;
  std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) override;
  void sum(std::span<double> numbers) override;
  void maximum(std::span<double> numbers) override;
  void begin_maximum(std::span<const double> numbers) override;
  void finish_maximum(std::span<double> numbers) override;
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override;
  std::vector<std::byte> scatter(const std::vector<std::vector<std::byte>>& parts) override;
  void broadcast(std::vector<std::byte>& bytes) override;
  [[noreturn]] void give_up() override;

 private:
  std::array<double, begun_max> begun_{};
};

// All ranks of this process's run: those that MPI started, or only this one.
std::unique_ptr<Ranks> all_ranks(int* argc, char*** argv);

}  // namespace md
