// The same in C++: owners instead of close calls, exceptions instead of codes.
#include <iostream>
#include <offpath/offpath.hpp>
#include <string>
#include <vector>

int main() try {
  constexpr std::size_t particles = 10000;
  constexpr int steps = 5;
  const std::string pool = "local:/particles-cpp";

  offpath::Channel channel;  // OFFPATH_AGENT
  std::vector<std::int32_t> id(particles);
  std::vector<double> x(3 * particles);
  for (std::size_t i = 0; i < particles; ++i) id[i] = static_cast<std::int32_t>(i);

  // Announced once, by hand: sends need not look for it any more. Withdrawn at the end of the block.
  const offpath::Range id_range(channel, std::span(id)), x_range(channel, std::span(x));
  offpath::Stream stream(channel, "particles-cpp", {{"id", "i"}, {"x", "+w:3g"}}, {.rows_max = particles});

  offpath::Ticket ticket = 0;
  for (int step = 0; step < steps; ++step) {
    if (step > 0) stream.wait_pulled(ticket);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = step + 1e-3 * static_cast<double>(i);
    ticket = stream.send({id.data(), x.data()}, particles, {"step" + std::to_string(step), "rank0"});
  }
  stream.wait_stored(ticket);

  for (const offpath::Entry& entry : channel.list(pool))
    std::cout << entry.key.row << ": " << entry.rows << " rows in " << entry.bytes << " bytes of Arrow\n";
  const offpath::Frame last = channel.get(pool, {"step4", "rank0"});
  std::cout << "read back " << (last.mapped() ? "without a copy" : "as a copy") << ": " << last.bytes().size()
            << " bytes\n";
} catch (const offpath::Error& error) {
  std::cerr << error.what() << " (" << ofp_code_name(error.code()) << ")\n";
  return 1;
}
