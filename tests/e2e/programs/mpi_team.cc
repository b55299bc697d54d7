// A team of all ranks, whose functions pass messages round. Rank 0 prints how many lanes it has.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <offpath/mpi.hpp>
#include <offpath/offpath.hpp>
#include <span>
#include <stdexcept>

namespace {

struct Step {  // of the plug-in's function "messages"
  std::uint32_t kind = 0, lane = 0, tag = 0, zero = 0;
  std::uint64_t bytes = 1000, seed = 0;
};
struct Outcome {
  std::int32_t code = 0, differs = 0;
  std::uint64_t bytes = 0;
};

void pass_round() {
  const offpath::TasksOptions options = offpath::team_of(MPI_COMM_WORLD, {.tasks_max = 4});
  if (options.tasks_max != 4) throw std::runtime_error("other options are lost");
  const offpath::Channel channel;
  offpath::Tasks tasks(channel, options);
  offpath::Segment memory(channel, 2 * sizeof(Outcome));
  const std::uint32_t lane = options.lane, lanes = options.lanes, left = (lane + lanes - 1) % lanes;
  const Step script[] = {{.kind = 0, .lane = (lane + 1) % lanes, .seed = lane},
                         {.kind = 1, .lane = left, .seed = left}};
  tasks.run(
      {.function = "t/messages", .outputs = {{"out", memory.bytes()}}, .arguments = std::as_bytes(std::span(script))});
  for (const Outcome& each : memory.as<Outcome>().first(2))
    if (each.code != 0 || each.differs != 0) throw std::runtime_error("a message did not arrive");
  if (lane == 0) std::printf("a team of %u lanes\n", lanes);
  MPI_Barrier(MPI_COMM_WORLD);  // messages end with their sender's session
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    pass_round();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
