// This agent's parts of writes of tracks (track_writes.h asks for them): the jobs under way, the waiting askers, and
// the end of a part whose asker is gone. A part has at most one job at a time, and all its files are removed unless it
// is published. A job that hangs holds a thread of the pool for programs' files (service/token.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "service/effects.h"
#include "sift/tracks/track_files.h"
#include "wire/messages/replies.h"

namespace offpath::sift {

class TrackParts {
 public:
  // The receiver of an answer: a member's channel, or the write of this agent.
  struct Asker {
    std::optional<service::ChannelNumber> channel{};  // empty: this agent itself
    std::uint64_t ticket = 0;
    std::uint64_t write = 0;  // its number at the asker
  };
  using Answer = std::function<void(const Asker&, Result<wire::Written>, TimeNs now, service::Effects&)>;

  static constexpr std::size_t user_parts_max = 8;         // unpublished parts, and jobs of parts that have ended
  static constexpr TimeNs asker_gone_ns = 60 * second_ns;  // without a request of its asker

  // `next` numbers jobs of the sift service.
  TrackParts(std::function<std::uint64_t()> next, Answer answer) : next_(std::move(next)), answer_(std::move(answer)) {}
  void set_self(std::string name) { self_ = std::move(name); }

  // `until`: the time of an answer with the progress so far. The other calls are answered when they are done. `more` on
  // a written part confirms that the directory is still the write's.
  void begin(const Asker& from, uid_t user, TrackSnapshot tracks, TrackFiles::Target target, const FrameMemory& memory,
             TimeNs until, TimeNs now, service::Effects& effects);
  void more(const Asker& from, TimeNs until, TimeNs now, service::Effects& effects);
  void publish(const Asker& from, TimeNs now, service::Effects& effects);
  void finish(const Asker& from, TimeNs now, service::Effects& effects);  // all parts are published
  void abandon(const Asker& from, TimeNs now, service::Effects& effects);

  [[nodiscard]] bool has(std::uint64_t job) const { return jobs_.contains(job); }
  void on_job(std::uint64_t job, Status status, TimeNs now, service::Effects& effects);
  void on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);
  void on_time(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  struct Counters {
    std::uint64_t files = 0, rows = 0, bytes = 0;  // of published parts
  };
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  using Key = std::pair<std::optional<service::ChannelNumber>, std::uint64_t>;
  enum class State { writing, written, publishing, published, finishing };
  struct Part {
    uid_t user;
    std::shared_ptr<TrackFiles> files;
    TimeNs heard;
    State state = State::writing;
    TrackFiles::Written written{};
    Status status{};  // a failure that was not reported yet
    std::optional<std::pair<Asker, TimeNs>> waiting{};
    std::uint64_t job = 0;  // that is under way
  };
  struct Job {
    Key part;  // which may have ended meanwhile
    uid_t user;
  };
  using Parts = std::map<Key, Part>;

  [[nodiscard]] Part* find(const Asker& from, TimeNs now, service::Effects& effects);
  std::uint64_t start(const Key& key, const Part& part, std::function<Status()> run, service::Effects& effects);
  [[nodiscard]] std::size_t under_way(uid_t user);
  void tell(Part& part, TimeNs now, service::Effects& effects);
  // False: an abandoned thread has the files, and removes them when it returns.
  bool remove_files(const Key& key, const Part& part, service::Effects& effects);
  Parts::iterator end(Parts::iterator at, TimeNs now, service::Effects& effects);
  Parts::iterator asker_gone(Parts::iterator at, TimeNs now, service::Effects& effects);

  std::function<std::uint64_t()> next_;
  Answer answer_;
  std::string self_;
  Parts parts_;
  std::map<std::uint64_t, Job> jobs_;
  std::vector<std::pair<uid_t, std::weak_ptr<TrackFiles>>> given_up_;  // each belongs to a thread until that returns
  Counters counters_;
};

}  // namespace offpath::sift
