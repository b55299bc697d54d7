// The processes that compute together. One alone is `OneRank`; MPI's are in ranks_mpi.cc, the only file that knows MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace md {

class Ranks {
 public:
  virtual ~Ranks() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int count() const = 0;

  // Sends `out` to one rank while receiving as much as `in` holds from another.
  virtual void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) = 0;
  // The same where the receiver does not know how much there will be.
  virtual std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) = 0;

  // Over all ranks, in place; the same bits on every rank.
  virtual void sum(std::span<double> numbers) = 0;
  virtual void maximum(std::span<double> numbers) = 0;
  // What every rank gave, in their order, at rank 0; nothing elsewhere.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;
  // Rank 0's bytes, everywhere.
  virtual void broadcast(std::vector<std::byte>& bytes) = 0;
  // Ends all ranks, this one as well: one of them cannot go on, and the others wait for it.
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
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override;
  void broadcast(std::vector<std::byte>& bytes) override;
  [[noreturn]] void give_up() override;
};

// All ranks of the run that this process belongs to: those that MPI started it with, or this one alone.
std::unique_ptr<Ranks> all_ranks(int* argc, char*** argv);

}  // namespace md
