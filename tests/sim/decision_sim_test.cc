// A budget that members share by decisions: the function of examples/12_cpu_budget, real exchanges, decisions and
// keepers, in virtual time, under seeded cuts, kills, stops, lost and late messages, slow functions, late
// keepers, refused settings and writes that fail. Each member has two actuators, between which its share moves.
// At every moment the sum of all limits, of members that are dead or stopped as well, has to be at most the budget. And
// without faults the budget is used.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <array>

#include "actuator/keeper.h"
#include "base/files/file_bytes.h"
#include "base/memory_file.h"
#include "exchange/decision/decision.h"
#include "offpath/decision.h"
#include "offpath/plugin.h"
#include "seeds.h"
#include "testing/exchange/loopback_members.h"
#include "testing/exchange/memory_actuator.h"
#include "testing/link/seeded_random.h"

namespace offpath::sim {
namespace {

using namespace exchange;

constexpr std::uint64_t floor_each = 100, total = 1000;  // thousandths of a core
constexpr std::size_t actuators = 2;                     // of each member
constexpr TimeNs late_max_ns = 10 * millisecond_ns;      // of a keeper; the example's settings end 20 ms early

// One call of the example's function, as a worker makes it.
struct Called : ofp_context {
  explicit Called(const plugin::Call& call) : ofp_context{} {
    struct_bytes = sizeof(ofp_context);
    this->function = call.function.c_str();
    arguments = call.arguments.data();
    arguments_bytes = call.arguments.size();
    inputs_.resize(call.inputs.size());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const plugin::Input& input = call.inputs[i];
      inputs_[i].struct_bytes = sizeof(ofp_input);
      inputs_[i].column = input.column.data();
      inputs_[i].column_bytes = input.column.size();
      inputs_[i].data = input.data.data();
      inputs_[i].bytes = input.data.size();
      pointers_.push_back(&inputs_[i]);
    }
    input_count = pointers_.size();
    inputs = pointers_.data();
    output = [](ofp_context* self, const char* name, std::uint64_t bytes, std::uint32_t) -> void* {
      auto& made = static_cast<Called*>(self)->made_;
      made.emplace_back(name, std::vector<std::byte>(bytes + 1));
      return made.back().second.data();
    };
  }
  plugin::Outputs outputs() const {
    plugin::Outputs all;
    for (const auto& [name, bytes] : made_) {
      plugin::Output each;
      each.name = name;
      each.bytes = bytes.size() - 1;
      each.memory = *memory_file("output");
      EXPECT_TRUE(write_all(each.memory.get(), Bytes(bytes).first(bytes.size() - 1), 0));
      all.push_back(std::move(each));
    }
    return all;
  }

 private:
  std::vector<ofp_input> inputs_;
  std::vector<const ofp_input*> pointers_;
  std::vector<std::pair<std::string, std::vector<std::byte>>> made_;
};

class BudgetSim {
 public:
  explicit BudgetSim(std::uint64_t seed) : world_(seed) {
    constexpr std::size_t counts[] = {2, 3, 4, 7, 16};
    constexpr const char* shapes[] = {"allgather", "neighbourhoods(2)", "grouped_allgather(3)", "hybrid(2, 3)"};
    count_ = counts[world_.below(std::size(counts))];
    shape_ = shapes[world_.below(std::size(shapes))];
    options_.name = "cpu";
    options_.interval_ns = 20 * millisecond_ns;
    options_.deadline_ns = 15 * millisecond_ns;
    options_.grants = GrantOptions{total, 12 * options_.interval_ns, 6 * options_.interval_ns};
    members_ = std::make_unique<LoopbackMembers>(options_, *parse_shape(shape_), count_, seed);
    nodes_.resize(count_);
    for (MemberIndex i = 0; i < count_; ++i) {
      names_.push_back(fmt::format("m{}", i));
      members_->kill(i);
      (*members_)[i].clock_shift = static_cast<TimeNs>(world_.below(1000)) * second_ns;
      (*members_)[i].clock_rate = 1 + (static_cast<double>(world_.below(200)) - 100) * 1e-6;
      start(i);
    }
  }

  void run() {
    SCOPED_TRACE(fmt::format("{} members, {}", count_, shape_));
    advance(2 * second_ns);
    for (int i = 0; i < 40 && !testing::Test::HasFatalFailure(); ++i) {
      act();
      advance(static_cast<TimeNs>(1 + world_.below(8)) * options_.interval_ns);
    }
    heal();
    advance(10 * second_ns);
    highest_ = 0;
    advance(2 * second_ns);
    EXPECT_GT(highest_, floor_each * count_ + total / 10 * 9);  // everybody wants more than there is
  }

 private:
  struct Node {
    std::array<std::uint64_t, actuators> limits{floor_each / 2, floor_each / 2};  // in force
    std::unique_ptr<actuator::Keeper> keeper;
    std::array<actuator::MemoryActuator*, actuators> actuator{};
    std::unique_ptr<Decision> decision;
    std::uint64_t epoch = 0;  // of the newest view it was given
    double wanted = 0;
    std::shared_ptr<plugin::Call> call{};  // running
    TimeNs ends_at = never;                // of the fabric's time: the call, or the setting
    std::vector<Decision::Asked> asked{};
  };

  [[nodiscard]] TimeNs local(MemberIndex i) const { return LoopbackMembers::local((*members_)[i], members_->now()); }
  [[nodiscard]] Grants& grants(MemberIndex i) { return *(*members_)[i].exchange->grants(); }

  void start(MemberIndex i) {
    Node& node = nodes_[i];
    std::vector<actuator::Keeper::Kept> kept;
    for (std::size_t j = 0; j < actuators; ++j) {
      auto made = std::make_unique<actuator::MemoryActuator>(node.limits[j]);
      node.actuator[j] = made.get();
      kept.push_back({std::move(made), j == 0 ? "cpu" : "other", 1, 100'000, second_ns});
    }
    node.keeper = std::make_unique<actuator::Keeper>(std::move(kept));
    node.decision = std::make_unique<Decision>(
        DecisionSettings{"budget",
                         "share",
                         fmt::format("{}", floor_each),
                         {{0, "cpu", 1, 100'000, second_ns}, {1, "other", 1, 100'000, second_ns}}});
    node.wanted = static_cast<double>(world_.below(3 * total));
    node.epoch = 0;
    node.call.reset();
    node.asked.clear();
    node.ends_at = never;
    members_->publish(i, std::vector<std::byte>(8));
    members_->start(i);
    (*members_)[i].views.clear();
    grants(i).set_user(true);
    grants(i).set_deciding(Deciding::granting, local(i));
  }
  // Its keeper sees the end of the agent.
  void kill(MemberIndex i) {
    if (!(*members_)[i].exchange) return;
    const TimeNs now = local(i);
    members_->kill(i);
    EXPECT_TRUE(nodes_[i].keeper->restore_all(now));
  }
  void act() {
    const auto member = static_cast<MemberIndex>(world_.below(count_));
    switch (world_.below(8)) {
      case 0:
        return kill(member);
      case 1:
        return kill(0);
      case 2:
        if (!(*members_)[member].exchange) start(member);
        return;
      case 3:
        if ((*members_)[member].exchange)
          members_->stop(member, members_->now() + static_cast<TimeNs>(world_.below(3000)) * millisecond_ns);
        return;
      case 4: {
        const std::uint64_t sides = world_.next();
        return members_->fabric().set_cut(
            [sides](MemberIndex from, MemberIndex to) { return (sides >> from % 61 & 1) != (sides >> to % 61 & 1); });
      }
      case 5: {
        LoopbackFabric::Faults faults;
        faults.lost = world_.chance(0.5) ? 0.2 : 0;
        faults.doubled = world_.chance(0.5) ? 0.2 : 0;
        faults.late = world_.chance(0.5) ? 0.1 : 0;
        faults.late_ns = 20 * options_.interval_ns;
        return members_->fabric().set_faults(faults);
      }
      case 6:
        return members_->fabric().set_cut(nullptr);
      default:
        for (Node& node : nodes_) node.wanted = static_cast<double>(world_.below(3 * total));
    }
  }
  void heal() {
    is_healed_ = true;
    members_->fabric().set_cut(nullptr);
    members_->fabric().set_faults({});
    for (MemberIndex i = 0; i < count_; ++i) {
      if (!(*members_)[i].exchange) start(i);
      nodes_[i].wanted = 2 * total;
    }
  }
  void advance(TimeNs time) {
    members_->run_until(members_->now() + time, [&](TimeNs) {
      step();
      return !testing::Test::HasFatalFailure();
    });
  }
  void step() {
    for (MemberIndex i = 0; i < count_; ++i) {
      if (members_->runs(i)) turn(i);
      // Keepers live on while their agent is stopped. They may be late.
      EXPECT_TRUE(nodes_[i].keeper->on_time(local(i) - static_cast<TimeNs>(world_.below(late_max_ns))));
    }
    look();
  }
  void look() {
    std::uint64_t sum = 0;
    for (const Node& node : nodes_)
      for (const std::uint64_t limit : node.limits) sum += limit;
    highest_ = std::max(highest_, sum);
    ASSERT_LE(sum, floor_each * count_ + total) << "at " << members_->now();
  }
  void turn(MemberIndex i) {
    Node& node = nodes_[i];
    auto& member = (*members_)[i];
    const TimeNs now = local(i);
    for (const ViewPtr& view : std::exchange(member.views, {})) give(i, *view, now);
    if (members_->now() < node.ends_at) return;
    node.ends_at = never;
    if (node.call) return end_call(i, now);
    while (!node.asked.empty() && !testing::Test::HasFatalFailure()) {
      set_first(i, now);
      look();
      if (world_.chance(0.2)) break;  // the keeper is slow
    }
  }
  void set_first(MemberIndex i, TimeNs now) {
    Node& node = nodes_[i];
    const Decision::Asked each = node.asked.front();
    node.asked.erase(node.asked.begin());
    Result<std::uint64_t> set = 0;
    actuator::MemoryActuator& actuator = *node.actuator[each.actuator];
    actuator.refuses = !is_healed_ && world_.chance(0.05);
    actuator.fails = !is_healed_ && world_.chance(0.05);
    if (each.until != 0)
      set = node.keeper->set(each.actuator, each.value, each.until, now);
    else if (const Status given_up = node.keeper->give_up(each.actuator, now); !given_up)
      set = tl::unexpected(given_up.error());
    actuator.refuses = actuator.fails = false;
    take(i, node.decision->on_set(each.number, set));
  }
  void give(MemberIndex i, const View& view, TimeNs now) {
    Node& node = nodes_[i];
    const Exchange& exchange = *(*members_)[i].exchange;
    const DecisionScene scene{.members = names_,
                              .self = i,
                              .interval_ns = options_.interval_ns,
                              .reductions = options_.reductions,
                              .grant_total = total,
                              .may_grant = grants(i).may_grant(now),
                              .held = grants(i).held(now),
                              .held_nonce = grants(i).held_nonce(),
                              .suspended_ns = 0};
    ASSERT_EQ(exchange.self(), i);
    const Schema schema{"demand", {{"wanted", FieldType::f64}}};
    Sample sample;
    sample.values.reset(1);
    sample.values.set(0, node.wanted);
    auto call =
        node.decision->on_view(view, scene, [&](const GaugeVisitor& visit) { visit(schema, sample, now); }, now);
    ASSERT_TRUE(call);
    if (!*call) return;
    node.call = std::move(*call);
    // Most answer at once, some after many intervals.
    const TimeNs takes = static_cast<TimeNs>(world_.below(world_.chance(0.1) ? 20 : 1) + 1) * options_.interval_ns / 4;
    node.ends_at = members_->now() + takes;
  }
  void end_call(MemberIndex i, TimeNs now) {
    Node& node = nodes_[i];
    const auto call = std::exchange(node.call, nullptr);
    if (world_.chance(0.05)) return node.decision->on_failed();
    Called context(*call);
    ASSERT_EQ(offpath_plugin()->functions[0].function(&context), 0);
    auto answer = read_answer(context.outputs(), count_, 64, node.decision->settings().actuators);
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_TRUE(answer->record);
    members_->publish(i, *answer->record);
    for (const ofp_grant_target& each : answer->grants) grants(i).set_target(each.member, each.amount);
    split(*answer);
    take(i, node.decision->on_answer(*answer, now));
  }
  // The function's settings of both actuators, in either order.
  void split(DecisionAnswer& answer) {
    if (answer.settings.empty()) return;
    DecisionAnswer::Setting one = answer.settings.front(), other = one;
    one.value = floor_each / 2 + world_.below(one.value - floor_each + 1);
    other.value -= one.value;
    other.actuator = 1;
    if (world_.chance(0.5)) std::swap(one, other);
    answer.settings = {one, other};
    if (!is_healed_ && world_.chance(0.1)) answer.settings.pop_back();
  }
  void take(MemberIndex i, const Decision::Step& step) {
    Node& node = nodes_[i];
    if (step.followed) grants(i).on_user_goes_by(step.followed->nonce, step.followed->number);
    node.asked.insert(node.asked.end(), step.asked.begin(), step.asked.end());
    if (!node.asked.empty())
      node.ends_at =
          members_->now() + static_cast<TimeNs>(world_.below(static_cast<std::uint64_t>(5 * millisecond_ns)));
  }

  link::SeededRandom world_;
  std::size_t count_ = 0;
  const char* shape_ = "";
  ExchangeOptions options_;
  std::unique_ptr<LoopbackMembers> members_;
  std::vector<Node> nodes_;
  std::vector<std::string> names_;
  std::uint64_t highest_ = 0;  // sum of all limits
  bool is_healed_ = false;
};

TEST(DecisionSim, TheSumIsNeverAboveTheBudget) {
  each_seed(60, [](std::uint64_t seed) { BudgetSim(seed).run(); });
}

}  // namespace
}  // namespace offpath::sim
