// A hundred agents' sift services in one process, with real data: as in the paper's impulse response, particles are put
// on every agent and sifted until all are in tracks. Jobs run at once, on one core, and pieces are passed from agent to
// agent as frames; so the work of the services is measured, not a network.
//
//   sift.impulse_linear                time of ten times as many particles, over ten times the time
//   sift.impulse_records_per_core_s    against the rate of the split alone, for as many stages
//   figure 7                           4, 16 and 128 splits, over the stages each needs; jobs, and everything else
//   figure 8                           the first stage alone: the split of every agent's particles
//   figure 9                           10, 100 and 1,000 M particles
//   sift.impulse_modelled_s            the same three, each agent on a core of its own, by simulation
//
// The simulation has the agents' real services in virtual time. As many particles as in the smallest are there; of
// larger sizes each stands for ten or a hundred. Thresholds and budgets are so much less, so there are as many pieces
// and splits as with all particles. A job takes so many times as long as it does here, everything else as long; pieces
// cross a network of 100 Gb/s and 2 us.
//
//   --agents NUMBER, --particles NUMBER (the smaller of the two sizes)
//   --part linear|figures|model, for a profile
#include <unistd.h>

#include <charconv>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "machine.h"
#include "report.h"
#include "sift/sift.h"
#include "sift/split/particles.h"

namespace offpath::bench {
namespace {

using namespace sift;

// Agents whose messages arrive at once.
class World {
 public:
  [[nodiscard]] static Result<std::unique_ptr<World>> make(const Settings& settings, std::uint32_t agents,
                                                           const FrameMemory& memory) {
    auto made = std::make_unique<World>();
    made->memory = memory;
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < agents; ++i) names.push_back(fmt::format("agent{:03}", i));
    for (const std::string& name : names) {
      SiftOptions options{.settings = settings, .self = {name, 1}, .memory = made->memory};
      OFP_ASSIGN(std::unique_ptr<Sift> agent, Sift::make(options, names));
      made->agents.push_back(std::move(agent));
    }
    return made;
  }

  void put(std::size_t agent, std::string_view row_key, FramePtr frame) {
    Effects effects;
    agents[agent]->on_put(next_token++, row_key, std::move(frame), 0, effects);
    add(agent, effects);
    settle();
  }

  Status flush() {
    Effects effects;
    ++flushes;
    flushed = 0;
    for (std::size_t i = 0; i < agents.size(); ++i) {
      agents[i]->on_flush(next_token++, flushes, never, 0, effects);
      add(i, effects);
    }
    settle();
    return flushed == agents.size()
               ? Status()
               : fail(Error::io, "the flush ended on {} of {} agents; {}", flushed, agents.size(), problem);
  }

  FrameMemory memory;
  std::vector<std::unique_ptr<Sift>> agents;
  double jobs_ns = 0;  // in splits, sorts, merges and checks

 private:
  void add(std::size_t agent, Effects& effects) {
    for (Effect& effect : effects) queue.emplace_back(agent, std::move(effect));
    effects.clear();
  }

  void settle() {
    Effects effects;
    while (!queue.empty()) {
      const std::size_t agent = queue.front().first;
      const Effect effect = std::move(queue.front().second);
      queue.pop_front();
      if (const auto* job = std::get_if<JobEffect>(&effect)) {
        const std::uint64_t began = ticks();
        const Status status = job->run();
        jobs_ns += double(ticks() - began) * ns_per_tick();
        if (!status && problem.empty())
          problem = status.error().message;  // normally retried by a timer, but time does not pass here
        agents[agent]->on_job(job->token, status, 0, effects);
      } else if (const auto* publish = std::get_if<PublishEffect>(&effect)) {
        const std::size_t to = agents[agent]->geometry().position_of(publish->member);
        const std::uint64_t token = next_token++;
        publishers[token] = {agent, publish->token};
        agents[to]->on_offer(token, publish->header, publish->frame ? publish->frame->bytes : 0, publish->frame, 0,
                             effects);
        add(to, effects);
        continue;
      } else if (const auto* answer = std::get_if<StoredEffect>(&effect)) {
        const auto found = publishers.extract(answer->token);
        if (found.empty()) continue;
        const auto [from, token] = found.mapped();
        agents[from]->on_published(token, answer->status, 0, effects);
        add(from, effects);
        continue;
      } else if (std::holds_alternative<FlushedEffect>(effect)) {
        ++flushed;
      }
      add(agent, effects);
    }
  }

  std::deque<std::pair<std::size_t, Effect>> queue;
  std::unordered_map<std::uint64_t, std::pair<std::size_t, std::uint64_t>> publishers;
  std::uint64_t next_token = 1, flushes = 0;
  std::size_t flushed = 0;
  std::string problem;  // the first failure of a job
};

// Agents with a core and a network link each, in virtual time.
class TimedWorld {
 public:
  static constexpr double latency_ns = 2000, bytes_per_ns = 12.5;

  // `stands_for`: particles of each record.
  TimedWorld(const Settings& settings, std::uint32_t count, std::uint64_t stands_for, const FrameMemory& memory)
      : agents_(count), stands_for_(double(stands_for)) {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < count; ++i) names.push_back(fmt::format("agent{:03}", i));
    for (std::uint32_t i = 0; i < count; ++i)
      agents_[i].sift = Sift::make({.settings = settings,
                                    .self = {names[i], 1},
                                    .memory = memory,
                                    .check_in_job_bytes = 0,
                                    .merged_bytes_max = (1ull << 30) / stands_for},
                                   names)
                            .value();
  }

  void put(std::size_t agent, FramePtr frame) {
    at(0, agent, [this, agent, frame = std::move(frame)](Effects& effects) {
      agents_[agent].sift->on_put(next_token_++, "0", frame, 0, effects);
    });
  }

  // Nanoseconds until all is in tracks.
  Result<double> run() {
    settle();
    for (std::size_t i = 0; i < agents_.size(); ++i)
      at(now_, i, [this, i](Effects& effects) { agents_[i].sift->on_flush(next_token_++, 1, never, 0, effects); });
    settle();
    if (flushed_ != agents_.size())
      return fail(Error::io, "the flush ended on {} of {} agents; {}", flushed_, agents_.size(), problem_);
    return now_;
  }
  [[nodiscard]] std::uint64_t rows() const {
    std::uint64_t rows = 0;
    for (const Agent& agent : agents_) rows += agent.sift->tracks().rows();
    return rows;
  }

 private:
  using Handler = std::function<void(Effects& effects)>;
  struct Agent {
    std::unique_ptr<Sift> sift;
    double core_free_ns = 0, link_free_ns = 0;
  };
  struct Event {
    std::size_t agent;
    Handler handle;
    JobEffect job{};  // before it, if there is one
  };

  void at(double when_ns, std::size_t agent, Handler handle, JobEffect job = {}) {
    events_.emplace(when_ns, Event{agent, std::move(handle), std::move(job)});
  }

  void settle() {
    while (!events_.empty()) {
      const auto node = events_.extract(events_.begin());
      Agent& agent = agents_[node.mapped().agent];
      double time = std::max(node.key(), agent.core_free_ns);
      const JobEffect& job = node.mapped().job;
      Status status;
      if (job.run) {
        const std::uint64_t began = ticks();
        status = job.run();
        time += double(ticks() - began) * ns_per_tick() * stands_for_;
        if (!status && problem_.empty()) problem_ = status.error().message;
      }
      Effects effects;
      const std::uint64_t began = ticks();
      if (job.run)
        agent.sift->on_job(job.token, status, 0, effects);
      else
        node.mapped().handle(effects);
      time += double(ticks() - began) * ns_per_tick();
      agent.core_free_ns = time;
      now_ = std::max(now_, time);
      for (Effect& effect : effects) carry_out(node.mapped().agent, time, effect);
    }
  }

  void carry_out(std::size_t agent, double time, Effect& effect) {
    if (auto* job = std::get_if<JobEffect>(&effect)) return at(time, agent, {}, std::move(*job));
    if (auto* publish = std::get_if<PublishEffect>(&effect)) return send(agent, time, std::move(*publish));
    if (std::holds_alternative<FlushedEffect>(effect)) ++flushed_;
    const auto* const answer = std::get_if<StoredEffect>(&effect);
    if (answer == nullptr) return;
    if (!answer->status && problem_.empty()) problem_ = answer->status.error().message;
    const auto publisher = publishers_.extract(answer->token);
    if (publisher.empty()) return;
    const auto from = publisher.mapped().first;
    at(time + latency_ns, from,
       [this, from, token = publisher.mapped().second, status = answer->status](Effects& more) {
         agents_[from].sift->on_published(token, status, 0, more);
       });
  }

  void send(std::size_t from, double time, PublishEffect publish) {
    const std::size_t to = agents_[from].sift->geometry().position_of(publish.member);
    const std::uint64_t token = next_token_++, bytes = publish.frame ? publish.frame->bytes : 0;
    publishers_[token] = {from, publish.token};
    if (to != from) {
      double& link = agents_[from].link_free_ns;
      link = std::max(link, time) + double(bytes) * stands_for_ / bytes_per_ns;
      time = link + latency_ns;
    }
    at(time, to, [this, to, token, bytes, header = publish.header, frame = publish.frame](Effects& effects) {
      agents_[to].sift->on_offer(token, header, bytes, frame, 0, effects);
    });
  }

  std::vector<Agent> agents_;
  double stands_for_;
  std::multimap<double, Event> events_;
  std::unordered_map<std::uint64_t, std::pair<std::size_t, std::uint64_t>> publishers_;
  std::uint64_t next_token_ = 1;
  std::size_t flushed_ = 0;
  double now_ = 0;
  std::string problem_;
};

FramePtr random_frame(const RowForm& form, std::uint64_t rows, std::uint64_t ids, std::mt19937_64& random,
                      const FrameMemory& memory) {
  RowForm::Made made = form.make_frame(rows, memory).value();
  for (std::size_t column = 1; column < made.columns.size(); ++column)
    std::memset(made.columns[column], 1, rows * form.widths()[column]);
  for (std::uint64_t row = 0; row < rows; ++row) store(made.columns[0] + row * 8, random() % ids);
  return made.frame;
}

struct Impulse {
  double ns = 0;       // until all particles are in tracks
  double jobs_ns = 0;  // of these
};

Result<Impulse> impulse(const Settings& settings, std::uint32_t agents, std::uint64_t particles,
                        const FrameMemory& memory) {
  OFP_ASSIGN(const std::unique_ptr<World> world, World::make(settings, agents, memory));
  const auto form = RowForm::make(particle_schema(), settings.key_rule()).value();
  std::mt19937_64 random(3);
  const std::uint64_t rows = particles / agents;
  // every agent's: only the number of bytes matters
  const FramePtr frame = random_frame(*form, rows, particles, random, world->memory);
  const std::uint64_t began = ticks();
  for (std::uint32_t i = 0; i < agents; ++i) world->put(i, "0", frame);
  OFP_TRY(world->flush());
  const double ns = double(ticks() - began) * ns_per_tick();
  std::uint64_t found = 0;
  for (const auto& agent : world->agents) found += agent->tracks().rows();
  if (found != rows * agents) return fail(Error::io, "{} of {} particles are in tracks", found, rows * agents);
  return Impulse{ns, world->jobs_ns};
}

// The median of `turns`, after one that warms up the memory.
Result<Impulse> median_impulse(const Settings& settings, std::uint32_t agents, std::uint64_t particles,
                               std::size_t turns, const FrameMemory& memory) {
  std::vector<Impulse> all;
  for (std::size_t i = 0; i <= turns; ++i) {
    OFP_ASSIGN(const Impulse each, impulse(settings, agents, particles, memory));
    if (i > 0) all.push_back(each);
  }
  std::ranges::sort(all, {}, &Impulse::ns);
  return all[all.size() / 2];
}

// Nanoseconds of the split of an equally large piece: counting, splitting, and adding up its parts' identifiers.
double split_ns(const Settings& settings, std::uint64_t rows, std::size_t turns, const FrameMemory& memory) {
  const auto form = RowForm::make(particle_schema(), settings.key_rule()).value();
  std::mt19937_64 random(3);
  std::vector<Piece> pieces(1);
  pieces[0].frame = random_frame(*form, rows, UINT64_MAX, random, memory);
  pieces[0].view = form->view({pieces[0].frame->buffer.data(), pieces[0].frame->bytes}).value();
  pieces[0].runs = {{0, rows}};
  std::vector<double> ns;
  for (std::size_t turn = 0; turn <= turns; ++turn) {
    const std::uint64_t began = ticks();
    keep(split_pieces(*form, pieces, settings.split_bits(1), memory));
    if (turn > 0) ns.push_back(double(ticks() - began) * ns_per_tick());
  }
  return median(ns);
}

Result<Settings> settings_of(std::uint32_t stages, std::uint32_t fanout) {
  return parse_settings(
      fmt::format("sift:/t?key=id&stages={}&fanout={}&threshold=64MiB&budget=512MiB", stages, fanout));
}

// Compares ten times the smaller impulse with the larger one, in turns.
Status add_linear(const Options& options, std::uint32_t agents, std::uint64_t small, const FrameMemory& memory,
                  Report& report) {
  OFP_ASSIGN(const Settings settings, settings_of(2, 16));
  const auto turn = [&](std::uint64_t particles) {
    return Turn([&, particles] {
      return impulse(settings, agents, particles, memory).map([](const Impulse& each) { return each.ns; });
    });
  };
  const std::uint64_t rows = 10 * small / agents;
  std::vector<double> record_ns, split_record_ns;  // of a particle: the larger impulse, and the split before or after
  const Turn larger = [&]() -> Result<double> {
    const bool split_first = record_ns.size() % 2 == 0;
    const auto split = [&] {
      split_record_ns.push_back(split_ns(settings, rows, 3, memory) * settings.stages / double(rows));
    };
    if (split_first) split();
    OFP_ASSIGN(const double ns, turn(10 * small)());
    if (!split_first) split();
    record_ns.push_back(ns / double(10 * small));
    return ns;
  };
  PairPlan plan = options.pairs();
  plan.warmups = 1;  // a pair takes ten seconds
  OFP_ASSIGN(const Comparison compared, run_pairs(plan, larger, turn(small)));
  // The pairs' ratios are small / large: ten times that shows how much better than linear the larger one is.
  report.add(Claim{.claim = "sift.impulse_linear",
                   .value = 1 / (10 * compared.ratio),
                   .unit = "x",
                   .peer = "ten times the smaller impulse",
                   .peer_value = 1,
                   .ratio = 10 * compared.ratio,
                   .interval = Interval{10 * compared.interval.low, 10 * compared.interval.high},
                   .pairs = compared.pairs,
                   .target = value_at_most(1.15, "x")});
  const Comparison rate =
      compare(std::span(record_ns).subspan(plan.warmups), std::span(split_record_ns).subspan(plan.warmups));
  report.add(Claim{.claim = "sift.impulse_records_per_core_s",
                   .value = 1e3 / rate.subject,
                   .unit = "M/s",
                   .peer = "the split / stages",
                   .peer_value = 1e3 / rate.peer,
                   .ratio = rate.ratio,
                   .interval = rate.interval,
                   .pairs = rate.pairs,
                   .target = ratio_at_least(0.4)});
  report.add(Series{"sift_fig9",
                    "Offpath, one core for all",
                    "particles",
                    "s",
                    {double(small), double(10 * small)},
                    {compared.peer / 1e9, compared.subject / 1e9}});
  return {};
}

// The largest impulse of figure 9: two copies of its particles, and intermediate data, have to fit into memory.
Status add_thousand(std::uint32_t agents, std::uint64_t particles, const FrameMemory& memory, Report& report) {
  constexpr std::uint64_t needed = 128ull << 30;
  const std::uint64_t there =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::string name = fmt::format("sift.impulse_s ({} M particles)", particles / 1'000'000);
  if (there < needed) {
    report.add(
        Claim{.claim = name,
              .unit = "s",
              .why = fmt::format("left out: needs {} GiB of memory, this machine has {}", needed >> 30, there >> 30)});
    return {};
  }
  OFP_ASSIGN(const Settings settings, settings_of(2, 16));
  OFP_ASSIGN(const Impulse found, median_impulse(settings, agents, particles, 1, memory));
  report.add(Claim{.claim = name, .value = found.ns / 1e9, .unit = "s"});
  report.add(Series{
      "sift_fig9", "Offpath, one core for all, 1,000 M", "particles", "s", {double(particles)}, {found.ns / 1e9}});
  return {};
}

Status add_figures(const Options& options, std::uint32_t agents, std::uint64_t particles, const FrameMemory& memory,
                   Report& report) {
  const std::size_t turns = options.quick ? 1 : 3;
  for (const auto& [fanout, stages] : {std::pair{4, 4}, {16, 2}, {128, 1}}) {
    OFP_ASSIGN(const Settings settings,
               settings_of(static_cast<std::uint32_t>(stages), static_cast<std::uint32_t>(fanout)));
    memory.cache
        ->clear();  // every buffer is an open file, and with 128 splits a hundred agents in one process have 12,800
    OFP_ASSIGN(const Impulse found, median_impulse(settings, agents, particles, turns, memory));
    const std::string name = fmt::format("{} splits, {} stage{}", fanout, stages, stages > 1 ? "s" : "");
    report.add(Series{"sift_fig7", name + "/jobs", "particles", "s", {double(particles)}, {found.jobs_ns / 1e9}});
    report.add(Series{
        "sift_fig7", name + "/publish", "particles", "s", {double(particles)}, {(found.ns - found.jobs_ns) / 1e9}});
  }
  memory.cache->clear();
  Series first{"sift_fig8", "Offpath, one core for all", "splits", "s", {}, {}};
  for (std::uint32_t fanout = 2; fanout <= 256; fanout *= 2) {
    OFP_ASSIGN(const Settings settings, settings_of(1, fanout));
    first.x.push_back(fanout);
    first.y.push_back(split_ns(settings, particles / agents, options.quick ? 1 : 7, memory) * agents / 1e9);
  }
  report.add(std::move(first));
  return {};
}

// Figure 9 by simulation.
Status add_model(std::uint32_t agents, std::uint64_t smallest, const FrameMemory& memory, Report& report) {
  const Settings whole = parse_settings("sift:/t?key=id&stages=2&fanout=16").value();
  const auto form = RowForm::make(particle_schema(), whole.key_rule()).value();
  // Heads and padding of frames do not shrink.
  const std::uint64_t fixed = 4 * parts_bytes_max(0, 0, whole.fanout, form->overhead_bytes());
  Series line{"sift_fig9_model", "modelled, a core for each agent", "particles", "s", {}, {}};
  for (const std::uint64_t stands_for : {1, 10, 100}) {
    const std::uint64_t particles = smallest * stands_for, rows = std::max<std::uint64_t>(smallest / agents, 1);
    Settings settings = whole;
    settings.threshold_bytes /= stands_for;
    settings.budget_bytes = whole.budget_bytes / stands_for + fixed;
    settings.credit_bytes = settings.budget_bytes;
    const std::uint64_t fragment = settings.threshold_bytes / form->row_bytes();
    std::mt19937_64 random(3);
    TimedWorld world(settings, agents, stands_for, memory);
    for (std::uint32_t agent = 0; agent < agents; ++agent)
      for (std::uint64_t row = 0; row < rows; row += fragment)
        world.put(agent, random_frame(*form, std::min(fragment, rows - row), particles, random, memory));
    OFP_ASSIGN(const double ns, world.run());
    if (world.rows() != rows * agents)
      return fail(Error::io, "{} of {} particles are in tracks", world.rows(), rows * agents);
    line.x.push_back(double(particles));
    line.y.push_back(ns / 1e9);
    report.add(Claim{.claim = fmt::format("sift.impulse_modelled_s ({} M particles)", double(particles) / 1e6),
                     .value = ns / 1e9,
                     .unit = "s"});
  }
  report.add(std::move(line));
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  const auto number = [&](std::string_view name, std::uint64_t otherwise) {
    const std::string_view text = options.other(name);
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
  };
  const auto agents = static_cast<std::uint32_t>(number("--agents", 100));
  const std::uint64_t small = number("--particles", options.quick ? 100'000 : 10'000'000);
  const std::string_view part = options.other("--part");
  // An agent prepares memory before it is needed (BufferCache::prepare), so first touches are excluded here: otherwise
  // the kernel's clearing of pages would be half of the measured time.
  const FrameMemory memory{BufferCache::make({.cached_bytes_max = 12ull << 30}), 0};
  if (part.empty() || part == "linear") OFP_TRY(add_linear(options, agents, small, memory, report));
  if (part.empty() || part == "model") OFP_TRY(add_model(agents, small, memory, report));
  if (!part.empty() && part != "figures") return {};
  OFP_TRY(add_thousand(agents, 100 * small, memory, report));
  return add_figures(options, agents, 10 * small, memory, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "sift", {"--agents", "--particles", "--part"}, offpath::bench::run);
}
