#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string>

#include "md/files/bad_input.h"
#include "md/ranks/pieces.h"
#include "md/ranks/ranks.h"

namespace md {
namespace {

int bytes_of(std::size_t size) {
  if (size > INT_MAX)
    throw BrokenRun("a message between ranks has " + std::to_string(size) + " bytes, MPI allows 2147483647");
  return static_cast<int>(size);
}

class MpiRanks : public Ranks {
 public:
  MpiRanks(int* argc, char*** argv) {
    int provided = 0;
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);  // OpenMP's threads make no MPI calls
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;
  ~MpiRanks() override {
    end_begun();
    MPI_Finalize();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int count() const override { return count_; }

  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override {
    MPI_Sendrecv(out.data(), bytes_of(out.size()), MPI_BYTE, to, 0, in.data(), bytes_of(in.size()), MPI_BYTE, from, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) override {
    unsigned long long size = out.size(), incoming = 0;
    MPI_Sendrecv(&size, 1, MPI_UNSIGNED_LONG_LONG, to, 0, &incoming, 1, MPI_UNSIGNED_LONG_LONG, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    std::vector<std::byte> in(incoming);
    exchange(to, out, from, in);
    return in;
  }

  void sum(std::span<double> numbers) override { reduce(numbers, MPI_SUM); }
  void maximum(std::span<double> numbers) override { reduce(numbers, MPI_MAX); }

  void begin_maximum(std::span<const double> numbers) override {
    end_begun();  // one that was not requested
    std::copy_n(numbers.begin(), numbers.size(), begun_.begin());
    MPI_Iallreduce(MPI_IN_PLACE, begun_.data(), bytes_of(numbers.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD,
                   &request_);
  }
  void finish_maximum(std::span<double> numbers) override {
    end_begun();
    std::copy_n(begun_.begin(), numbers.size(), numbers.begin());
  }

  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override {
    std::vector<std::vector<std::byte>> all;
    if (rank_ != 0) {
      send(0, bytes);
      return all;
    }
    all.emplace_back(bytes.begin(), bytes.end());
    for (int from = 1; from < count_; ++from) all.push_back(receive(from));
    return all;
  }

  std::vector<std::byte> scatter(const std::vector<std::vector<std::byte>>& parts) override {
    if (rank_ != 0) return receive(0);
    for (int to = 1; to < count_; ++to) send(to, parts.at(static_cast<std::size_t>(to)));
    return parts.at(0);
  }

  void broadcast(std::vector<std::byte>& bytes) override {
    unsigned long long size = bytes.size();
    MPI_Bcast(&size, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    bytes.resize(size);
    MPI_Bcast(bytes.data(), bytes_of(bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  }

  [[noreturn]] void give_up() override {
    if (count_ > 1) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    std::exit(1);
  }

 private:
  // The size, then the bytes in pieces.
  static void send(int to, std::span<const std::byte> bytes) {
    const unsigned long long size = bytes.size();
    MPI_Send(&size, 1, MPI_UNSIGNED_LONG_LONG, to, 1, MPI_COMM_WORLD);
    in_pieces(bytes, piece_max, [&](std::span<const std::byte> piece) {
      MPI_Send(piece.data(), bytes_of(piece.size()), MPI_BYTE, to, 1, MPI_COMM_WORLD);
    });
  }
  static std::vector<std::byte> receive(int from) {
    unsigned long long size = 0;
    MPI_Recv(&size, 1, MPI_UNSIGNED_LONG_LONG, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::vector<std::byte> in(size);
    in_pieces(std::span(in), piece_max, [&](std::span<std::byte> piece) {
      MPI_Recv(piece.data(), bytes_of(piece.size()), MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    });
    return in;
  }

  void end_begun() {
    if (request_ != MPI_REQUEST_NULL) MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }

  // To one rank and then to all: an all-reduce may add in a different order on every rank.
  void reduce(std::span<double> numbers, MPI_Op operation) {
    const int count = bytes_of(numbers.size());
    if (rank_ == 0) {
      MPI_Reduce(MPI_IN_PLACE, numbers.data(), count, MPI_DOUBLE, operation, 0, MPI_COMM_WORLD);
    } else {
      MPI_Reduce(numbers.data(), nullptr, count, MPI_DOUBLE, operation, 0, MPI_COMM_WORLD);
    }
    MPI_Bcast(numbers.data(), count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }

  int rank_ = 0, count_ = 1;
  std::array<double, begun_max> begun_{};
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Ranks> all_ranks(int* argc, char*** argv) { return std::make_unique<MpiRanks>(argc, argv); }

}  // namespace md
