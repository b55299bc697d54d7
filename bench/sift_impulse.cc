// A hundred agents' sift services in one process, with real data: as in the paper's impulse response, particles are put
// on every agent and sifted until all are in tracks. Jobs run at once, on one core, and pieces are passed from agent to
// agent as frames; so the work of the services is measured, not a network.
//
//   sift.impulse_linear                time of ten times as many particles, over ten times the time
//   sift.impulse_records_per_core_s    against the rate of the split alone, for as many stages
//   figure 7                           4, 16 and 128 splits, over the stages each needs; jobs, and all that is not jobs
//   figure 8                           the first stage alone: the split of what every agent was given
//   figure 9                           10, 100 and 1,000 M particles
//
//   --agents NUMBER, --particles NUMBER (the smaller of the two sizes)
//   --part linear|figures, for a profile
#include <unistd.h>

#include <charconv>
#include <deque>
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
  const auto form = RowForm::make(particle_schema(), settings.key).value();
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
  const auto form = RowForm::make(particle_schema(), settings.key).value();
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
                   .unit = "",
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
  if (!part.empty() && part != "figures") return {};
  OFP_TRY(add_thousand(agents, 100 * small, memory, report));
  return add_figures(options, agents, 10 * small, memory, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "sift", {"--agents", "--particles", "--part"}, offpath::bench::run);
}
