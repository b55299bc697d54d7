// A hundred agents' sift services in one process, with real data: as the paper's impulse response, particles are put on every
// agent and sifted until all are in tracks. Jobs run as they come, on one core, and pieces go from agent to agent as the
// frames they are; so what is measured is the work of the services, not of a network.
//
//   sift.impulse_linear                time of ten times as many particles, over ten times the time
//   sift.impulse_records_per_core_s    against the rate of the split alone, for as many stages
//   sift.track_ms_p99                  one track out of 1 M identifiers x 100 steps, sifted by one agent that goes on sifting
//
//   --agents NUMBER, --particles NUMBER (the smaller of the two sizes)
#include <charconv>
#include <deque>
#include <memory>
#include <numeric>
#include <random>

#include "machine.h"
#include "report.h"
#include "sift/particles.h"
#include "sift/sift.h"
#include "sift/track_reader.h"

namespace offpath::bench {
namespace {

using namespace sift;

// Agents that hear each other at once.
class World {
 public:
  [[nodiscard]] static Result<std::unique_ptr<World>> make(const Settings& settings, std::uint32_t agents, const FrameMemory& memory) {
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
    return flushed == agents.size() ? Status() : fail(Error::io, "the flush ended on {} of {} agents; {}", flushed, agents.size(), problem);
  }

  FrameMemory memory;
  std::vector<std::unique_ptr<Sift>> agents;

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
        const Status status = job->run();
        if (!status && problem.empty()) problem = status.error().message;  // tried again by a timer, and there is no time here
        agents[agent]->on_job(job->token, status, 0, effects);
      } else if (const auto* publish = std::get_if<PublishEffect>(&effect)) {
        const std::size_t to = agents[agent]->geometry().position_of(publish->member);
        const std::uint64_t token = next_token++;
        publishers[token] = {agent, publish->token};
        agents[to]->on_offer(token, publish->header, publish->frame ? publish->frame->bytes : 0, publish->frame, 0, effects);
        add(to, effects);
        continue;
      } else if (const auto* answer = std::get_if<AnswerEffect>(&effect)) {
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

FramePtr random_frame(const RowForm& form, std::uint64_t rows, std::uint64_t ids, std::mt19937_64& random, const FrameMemory& memory) {
  RowForm::Made made = form.make_frame(rows, memory).value();
  for (std::size_t column = 1; column < made.columns.size(); ++column) std::memset(made.columns[column], 1, rows * form.widths()[column]);
  for (std::uint64_t row = 0; row < rows; ++row) store(made.columns[0] + row * 8, random() % ids);
  return made.frame;
}

// Nanoseconds until all particles are in tracks.
Result<double> impulse(const Settings& settings, std::uint32_t agents, std::uint64_t particles, const FrameMemory& memory) {
  OFP_ASSIGN(const std::unique_ptr<World> world, World::make(settings, agents, memory));
  const auto form = RowForm::make(particle_schema(), settings.key).value();
  std::mt19937_64 random(3);
  const std::uint64_t rows = particles / agents;
  const FramePtr frame = random_frame(*form, rows, particles, random, world->memory);  // every agent's: only bytes count
  const std::uint64_t began = ticks();
  for (std::uint32_t i = 0; i < agents; ++i) world->put(i, "0", frame);
  OFP_TRY(world->flush());
  const double ns = double(ticks() - began) * ns_per_tick();
  std::uint64_t found = 0;
  for (const auto& agent : world->agents) found += agent->tracks().rows();
  if (found != rows * agents) return fail(Error::io, "{} of {} particles are in tracks", found, rows * agents);
  return ns;
}

// Records a second of the split alone, of pieces as large.
double split_rate(const Settings& settings, std::uint64_t rows, const FrameMemory& memory) {
  const auto form = RowForm::make(particle_schema(), settings.key).value();
  std::mt19937_64 random(3);
  std::vector<Piece> pieces(1);
  pieces[0].frame = random_frame(*form, rows, UINT64_MAX, random, memory);
  pieces[0].view = form->view({pieces[0].frame->buffer.data(), pieces[0].frame->bytes}).value();
  pieces[0].runs = {{0, rows}};
  std::vector<double> rates;
  for (int turn = 0; turn < 9; ++turn) {
    const std::uint64_t began = ticks();
    keep(split_pieces(*form, pieces, settings.split_bits(1), memory));
    rates.push_back(double(rows) / (double(ticks() - began) * ns_per_tick()) * 1e9);
  }
  return median(rates);
}

Status add_tracks(const Options& options, Report& report, const FrameMemory& memory) {
  const std::uint64_t ids = options.quick ? 10'000 : 1'000'000, steps = options.quick ? 20 : 100;
  OFP_ASSIGN(const Settings settings, parse_settings("sift:/t?key=id&fanout=64&threshold=16MiB&budget=2GiB"));
  OFP_ASSIGN(const std::unique_ptr<World> world, World::make(settings, 1, memory));
  const auto form = RowForm::make(particle_schema(), settings.key).value();
  std::vector<std::uint64_t> order(ids);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(5);
  std::vector<double> ms;
  for (std::uint64_t step = 0; step < steps; ++step) {
    RowForm::Made made = form->make_frame(ids, world->memory).value();
    for (std::size_t column = 1; column < made.columns.size(); ++column) std::memset(made.columns[column], 1, ids * form->widths()[column]);
    std::ranges::shuffle(order, random);
    std::memcpy(made.columns[0], order.data(), ids * 8);
    world->put(0, fmt::format("{}", step), made.frame);
    if (step + 10 < steps) continue;
    for (int i = 0; i < 200; ++i) {  // between two steps: caches hold what was sifted, not what is looked for
      const std::uint64_t id = random() % ids;
      const std::uint64_t began = ticks();
      TrackReader reader(world->agents[0]->tracks({&id, 1}), {.identifiers = {{id}}}, 1 << 20);
      OFP_ASSIGN(const FramePtr frame, reader.next(world->memory));
      ms.push_back(double(ticks() - began) * ns_per_tick() / 1e6);
      keep(frame);
    }
  }
  OFP_TRY(world->flush());
  report.add(Claim{.claim = "sift.track_ms_p99 (in the process)", .value = quantile(ms, 0.99), .unit = "ms", .target = value_at_most(5, "ms")});
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
  OFP_ASSIGN(const Settings settings, parse_settings("sift:/t?key=id&stages=2&fanout=16&threshold=64MiB&budget=512MiB"));
  // An agent's memory is there when it is needed (BufferCache::prepare), so nobody's is touched for the first time here: the
  // kernel's clearing of pages would be half of what is measured.
  const FrameMemory memory{BufferCache::make({.cached_bytes_max = 12ull << 30}), 0};
  OFP_TRY(impulse(settings, agents, 10 * small, memory).map([](double) {}));
  OFP_ASSIGN(const double long_ns, impulse(settings, agents, 10 * small, memory));
  OFP_TRY(impulse(settings, agents, small, memory).map([](double) {}));
  OFP_ASSIGN(const double short_ns, impulse(settings, agents, small, memory));
  report.add(Claim{.claim = "sift.impulse_linear", .value = long_ns / (10 * short_ns), .unit = "", .target = value_at_most(1.15, "")});
  const double rate = double(10 * small) / long_ns * 1e9, split = split_rate(settings, 10 * small / agents, memory) / settings.stages;
  report.add(Claim{.claim = "sift.impulse_records_per_core_s", .value = rate / 1e6, .unit = "M/s", .peer = "the split / stages",
                   .peer_value = split / 1e6, .ratio = rate / split, .target = ratio_at_least(0.4)});
  for (const auto& [fanout, stages] : {std::pair{4, 4}, {16, 2}, {128, 1}}) {
    OFP_ASSIGN(const Settings each, parse_settings(fmt::format("sift:/t?key=id&stages={}&fanout={}&threshold=64MiB&budget=512MiB", stages, fanout)));
    memory.cache->clear();  // every buffer is an open file, and with 128 splits a hundred agents in one process have 12,800
    OFP_TRY(impulse(each, agents, small, memory).map([](double) {}));
    OFP_ASSIGN(const double ns, impulse(each, agents, small, memory));
    report.add(Series{"fig7", fmt::format("{} splits, {} stages", fanout, stages), "particles", "s", {double(small)}, {ns / 1e9}});
  }
  memory.cache->clear();
  return add_tracks(options, report, memory);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "sift", {"--agents", "--particles"}, offpath::bench::run);
}
