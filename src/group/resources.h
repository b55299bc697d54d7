// The directory of a group: its agents' resources, by path. Each agent knows its own part, and asks another agent for
// its part when a program wants it. No entry is copied in advance.
//
//   /members/NAME         all members; /racks/RACK/NAME and /roles/ROLE/NAME the living ones: from the agent itself
//   /exchanges/NAME       /functions/PLUG-IN/NAME       /pools/NAME       /sift/NAME
//
// A part is made of sections, which the services of the agent give (services/resource_sections.h in src/agent). A
// question may wait until the part has another version than the one seen, so a program watches without polling. After a
// change the answer is delayed a little, so that many changes cause few answers.
//
// Work and memory are bounded. A round answers so many bytes, and the next one continues; equal questions share a page.
// Waiting questions are counted for the program, for the user (whom a member names, if it asks for a program of its
// own), and for the member. A question to a member counts until that has answered, even if its program is gone.
//
// A state machine like the other services.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "base/status.h"
#include "service/service.h"

namespace offpath::group {

struct Resource {
  std::string path;
  std::string about;  // its options or properties, "name=value&…"; of a function its description
};

// One folder of the directory.
struct ResourceSection {
  using Take = std::function<bool(std::string_view name, std::string about)>;  // false: stop

  std::string root;  // "/pools"
  // All agents know it, so other agents are not asked for it.
  bool of_group = false;
  // Grows whenever the result of `visit` changes.
  std::function<std::uint64_t()> changes;
  // Visits entries behind `after` that this user may see, in the order of names.
  std::function<void(uid_t user, std::string_view after, const Take& take)> visit;
};

class Resources final : public service::Service {
 public:
  // Bounds of waiting questions: in all, of a user, of a program (a watch has one at each member), and of a program at
  // one member; of another agent in all, and of one of its users.
  static constexpr std::size_t waiting_max = 65536, user_waiting_max = 8192, program_waiting_max = 2048,
                               program_member_max = 64, member_waiting_max = 16384, member_user_max = 1024;
  static constexpr std::size_t page_bytes = 16 * 1024;
  static constexpr std::size_t round_bytes = 512 * 1024;  // answered in one round to those that waited
  static constexpr TimeNs wait_max_ns = 60 * second_ns, gather_ns = 20 * millisecond_ns;
  static constexpr TimeNs member_grace_ns = 2 * second_ns;  // for the answer of a member whose wait is over

  void set_self(std::string name, std::uint64_t process);
  void add(ResourceSection section);  // sections of different roots, in any order

  void on_closed(service::ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const override;
  bool on_round(TimeNs now, service::Effects& effects) override;

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size() + relayed_.size(); }

 private:
  using Counted = std::pair<service::ChannelNumber, std::string>;  // channel 0: of all
  struct Limit {
    Counted counted;
    std::size_t max;
  };
  using Limits = std::vector<Limit>;
  struct Question {
    service::ChannelNumber channel = 0;
    std::uint64_t ticket = 0;
    uid_t user = 0;
    bool of_member = false;
    std::string path, after;
    std::uint64_t seen = 0;
    std::uint64_t number = 0;  // a member's, for its cancellation
    TimeNs until = 0;
    bool is_due = false;
    Limits limits{};
  };
  struct Relayed {
    service::ChannelNumber channel;
    std::uint64_t ticket;
    std::string member;
    Limits limits;
    bool is_wanted = true;
  };
  struct Page {
    wire::Listed listed{};
    std::shared_ptr<const void> texts;
    std::size_t bytes = 0;
  };

  [[nodiscard]] Status serve(const service::Request& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status take(Question question, std::int64_t wait_ns, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status relay(const service::Request& asked, const wire::ListResources& list, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status take_room(const Limits& limits);
  void give_room(const Limits& limits);
  [[nodiscard]] Page page_of(const Question& question) const;
  void answer_due(service::Effects& effects);
  void cancel(service::ChannelNumber channel, std::uint64_t ticket, TimeNs now, service::Effects& effects);
  void drop(std::uint64_t number);
  void stop_asking(std::uint64_t number, TimeNs now, service::Effects& effects);
  [[nodiscard]] std::uint64_t version(bool of_member) const;

  std::string self_;
  std::uint64_t process_ = 1;
  std::vector<ResourceSection> sections_;  // by root
  std::map<std::uint64_t, Question> waiting_;
  DueTimes<std::uint64_t> ends_;              // of their waits
  std::deque<std::uint64_t> due_;             // of these, those that are answered next
  TimeNs answers_at_ = never;                 // the rest of them
  std::map<std::uint64_t, Relayed> relayed_;  // to members, by number
  std::map<std::pair<service::ChannelNumber, std::uint64_t>, std::uint64_t> by_ticket_;  // of both, while wanted
  std::map<std::pair<service::ChannelNumber, std::uint64_t>, std::uint64_t> by_number_;  // of members, tickets
  std::map<Counted, std::size_t> counts_;                                                // of both
  std::uint64_t next_ = 1;
  std::uint64_t known_ = 0;       // the version of the last round
  TimeNs gathers_until_ = never;  // the time at which waiting questions are answered
};

}  // namespace offpath::group
