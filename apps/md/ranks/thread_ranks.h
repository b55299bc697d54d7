// Ranks as threads of one process, for tests: messages are in a queue for each pair of ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "md/ranks/ranks.h"

namespace md {

class ThreadRanks {
 public:
  // Calls of all ranks together.
  struct Counts {
    int maxima = 0, begun = 0;
  };
  // Runs work(ranks) once for each rank, in parallel. Throws the exception of one of them; the others then end as well.
  template <class Work>
  static Counts run(int count, const Work& work) {
    ThreadRanks all(count);
    std::vector<std::exception_ptr> failed(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&all, &work, &failed, rank] {
        One one(all, rank);
        try {
          work(static_cast<Ranks&>(one));
        } catch (...) {
          failed[static_cast<std::size_t>(rank)] = std::current_exception();
          all.end();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& each : failed) {
      if (each) std::rethrow_exception(each);
    }
    return {all.maxima_, all.begun_};
  }

 private:
  explicit ThreadRanks(int count) : count_(count) {}

  // Messages of a begun maximum have a queue of their own: others overtake them.
  enum class Kind { other, begun };
  void send(int from, int to, std::span<const std::byte> bytes, Kind kind = Kind::other) {
    {
      const std::lock_guard lock(mutex_);
      waiting_[{from, to, kind}].emplace_back(bytes.begin(), bytes.end());
    }
    arrived_.notify_all();
  }
  std::vector<std::byte> receive(int from, int to, Kind kind = Kind::other) {
    std::unique_lock lock(mutex_);
    auto& queue = waiting_[{from, to, kind}];
    const bool there = arrived_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_ || !queue.empty(); });
    if (!there || queue.empty()) throw std::runtime_error("no message from rank " + std::to_string(from));
    std::vector<std::byte> bytes = std::move(queue.front());
    queue.pop_front();
    return bytes;
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    arrived_.notify_all();
  }

  class One : public Ranks {
   public:
    One(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int count() const override { return all_.count_; }

    void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override {
      const std::vector<std::byte> bytes = exchange_any(to, out, from);
      if (bytes.size() != in.size()) throw std::runtime_error("a message of another size than expected");
      std::copy(bytes.begin(), bytes.end(), in.begin());
    }
    std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) override {
      all_.send(rank_, to, out);
      return all_.receive(from, rank_);
    }
    void sum(std::span<double> numbers) override {
      reduce(numbers, [](double a, double b) { return a + b; });
    }
    void maximum(std::span<double> numbers) override {
      ++all_.maxima_;
      reduce(numbers, [](double a, double b) { return std::max(a, b); });
    }
    void begin_maximum(std::span<const double> numbers) override {
      if (begun_ > 0) {  // one that was not requested
        std::vector<double> dropped(begun_);
        finish_maximum(dropped);
      }
      begun_ = numbers.size();
      ++all_.begun_;
      for (int to = 0; to < count(); ++to) all_.send(rank_, to, std::as_bytes(numbers), Kind::begun);
    }
    void finish_maximum(std::span<double> numbers) override {
      begun_ = 0;
      take_all(numbers, Kind::begun, [](double a, double b) { return std::max(a, b); });
    }
    std::vector<std::byte> scatter(const std::vector<std::vector<std::byte>>& parts) override {
      for (int to = 0; rank_ == 0 && to < count(); ++to) all_.send(0, to, parts.at(static_cast<std::size_t>(to)));
      return all_.receive(0, rank_);
    }
    std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override {
      std::vector<std::vector<std::byte>> found;
      all_.send(rank_, 0, bytes);
      for (int from = 0; rank_ == 0 && from < count(); ++from) found.push_back(all_.receive(from, 0));
      return found;
    }
    void broadcast(std::vector<std::byte>& bytes) override {
      for (int to = 0; rank_ == 0 && to < count(); ++to) all_.send(0, to, bytes);
      bytes = all_.receive(0, rank_);
    }
    [[noreturn]] void give_up() override { throw std::runtime_error("a rank gave up"); }

   private:
    template <class Operation>
    void reduce(std::span<double> numbers, const Operation& operation) {
      for (int to = 0; to < count(); ++to) all_.send(rank_, to, std::as_bytes(numbers));
      take_all(numbers, Kind::other, operation);
    }
    template <class Operation>
    void take_all(std::span<double> numbers, Kind kind, const Operation& operation) {
      for (int from = 0; from < count(); ++from) {
        const std::vector<std::byte> bytes = all_.receive(from, rank_, kind);
        std::vector<double> theirs(numbers.size());
        std::memcpy(theirs.data(), bytes.data(), numbers.size_bytes());
        for (std::size_t k = 0; k < numbers.size(); ++k)
          numbers[k] = from == 0 ? theirs[k] : operation(numbers[k], theirs[k]);
      }
    }
    ThreadRanks& all_;
    int rank_;
    std::size_t begun_ = 0;  // numbers of a maximum that was begun
  };

  int count_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::tuple<int, int, Kind>, std::deque<std::vector<std::byte>>> waiting_;
  bool ended_ = false;
  std::atomic<int> maxima_{0}, begun_{0};
};

}  // namespace md
