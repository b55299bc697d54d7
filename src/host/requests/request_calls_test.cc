// Asynchronous requests, against an agent that answers when the test says so.
#include <array>

#include "testing/host/fake_agent.h"

namespace offpath::host {
namespace {

class RequestCalls : public HostCalls {
 protected:
  explicit RequestCalls(link::LoopbackOptions options = {}) : HostCalls(std::move(options)) {
    agent->objects["a"] = {std::vector<std::byte>(5000, std::byte{9})};
  }
  ~RequestCalls() override {
    for (ofp_request* each : requests_) ofp_request_free(each);
  }
  // To be freed when the test is over.
  ofp_request* keep(ofp_request* request) { return requests_.emplace_back(request); }
  ofp_request* want(const char* row, std::int64_t wait_ns = OFP_FOREVER) {
    ofp_request* request = nullptr;
    EXPECT_EQ(ofp_pool_want(channel, "local:/p", row, "", wait_ns, &request, &error), OFP_OK) << said();
    return request;
  }
  ofp_request* list(std::int64_t wait_ns = second_ns) {
    ofp_request* request = nullptr;
    EXPECT_EQ(ofp_pool_list_start(channel, "local:/p", nullptr, nullptr, wait_ns, &request, &error), OFP_OK) << said();
    return request;
  }
  ofp_request* drop() {
    ofp_request* request = nullptr;
    EXPECT_EQ(ofp_pool_drop_start(channel, "local:/p", "a*", nullptr, second_ns, &request, &error), OFP_OK) << said();
    return request;
  }
  ofp_request* compute(const char* row, const char* result_column = nullptr) {
    ofp_request* request = nullptr;
    EXPECT_EQ(ofp_pool_compute_start(channel, "local:/p", row, "", "plugin", "f", nullptr, 0, nullptr, result_column,
                                     second_ns, &request, &error),
              OFP_OK)
        << said();
    return request;
  }
  ofp_request* query(std::int64_t wait_ns = second_ns) {
    ofp_request* request = nullptr;
    std::string asked = "a query";
    EXPECT_EQ(ofp_pool_query_start(channel, "local:/p", nullptr, nullptr, asked.data(), asked.size(), wait_ns, &request,
                                   &error),
              OFP_OK)
        << said();
    asked.assign(asked.size(), ' ');
    return request;
  }
  // Everything that has to be given back is.
  void settle() {
    for (int i = 0; i < 4; ++i) {
      round_trip();
      ASSERT_EQ(ofp_poll(channel, &error), OFP_OK) << said();
    }
  }
  void round_trip() { ASSERT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_OK) << said(); }

 private:
  std::vector<ofp_request*> requests_;
};

TEST_F(RequestCalls, ObjectsAreWantedAndComeLater) {
  agent->holds_requests = true;
  ofp_frame* frame = nullptr;
  ofp_request* next = nullptr;
  EXPECT_EQ(ofp_request_next(channel, 0, &next, &error), OFP_NOT_FOUND);
  ofp_request *const first = keep(want("a")), *const second = keep(want("a")), *const missing = keep(want("b"));
  ofp_request* const unwanted = want("a");
  EXPECT_EQ(ofp_request_wait(first, 0, &error), OFP_WOULD_BLOCK);
  EXPECT_EQ(ofp_request_frame(first, &frame, &error), OFP_WOULD_BLOCK);
  EXPECT_EQ(ofp_request_next(channel, 1000, &next, &error), OFP_WOULD_BLOCK);
  round_trip();  // requests of others are answered meanwhile
  ofp_request_free(unwanted);
  agent->answer_held();
  ASSERT_EQ(ofp_request_wait(second, second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_frame(second, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_frame_bytes(frame), 5000u);
  ofp_frame_release(frame);
  EXPECT_EQ(ofp_request_wait(second, second_ns, &error), OFP_OK) << "however often it is asked";
  EXPECT_EQ(ofp_request_frame(second, &frame, &error), OFP_CLOSED) << "it is given once";
  ASSERT_EQ(ofp_request_next(channel, second_ns, &next, &error), OFP_OK) << said();
  EXPECT_EQ(next, first);
  ASSERT_EQ(ofp_request_next(channel, second_ns, &next, &error), OFP_OK) << said();
  EXPECT_EQ(next, first) << "it was not waited for yet";
  ASSERT_EQ(ofp_request_wait(first, 0, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_next(channel, second_ns, &next, &error), OFP_OK) << said();
  EXPECT_EQ(next, missing);
  EXPECT_EQ(ofp_request_wait(missing, 0, &error), OFP_NOT_FOUND) << said();
  EXPECT_EQ(ofp_request_frame(missing, &frame, &error), OFP_NOT_FOUND) << "it says why, too";
  EXPECT_EQ(ofp_request_next(channel, 0, &next, &error), OFP_NOT_FOUND);
  ASSERT_EQ(ofp_request_frame(first, &frame, &error), OFP_OK) << said();
  ofp_frame_release(frame);
  settle();
  EXPECT_EQ(agent->released.size(), 3u) << "what nobody wanted any more, too";
  EXPECT_EQ(agent->cancelled.size(), 1u) << "the agent was told";
}

TEST_F(RequestCalls, ARequestEndsThoughItsAgentDoesNotAnswer) {
  agent->holds_requests = true;
  for (ofp_request* const each : {want("a", 1000), list(1000), query(1000)}) {
    ofp_request* next = nullptr;
    keep(each);
    ASSERT_EQ(ofp_request_next(channel, OFP_FOREVER, &next, &error), OFP_OK) << said();
    EXPECT_EQ(ofp_request_wait(next, 0, &error), OFP_TIMEOUT) << said();
  }
  round_trip();
  EXPECT_EQ(agent->cancelled.size(), 2u) << "a list is not cancelled: it holds nothing";
}

TEST_F(RequestCalls, AllKindsAreUnderWayAtOnce) {
  for (char row = 'b'; row < 'i'; ++row) agent->objects[std::string(1, row)] = {};
  agent->query_frames = {"a"};
  agent->holds_requests = true;
  ofp_request *const listed = keep(list()), *const dropped = keep(drop()), *const computed = keep(compute("a")),
                     *const stored = keep(compute("a", "out")), *const queried = keep(query());
  for (ofp_request* const each : {listed, dropped, computed, stored, queried})
    EXPECT_EQ(ofp_request_wait(each, 0, &error), OFP_WOULD_BLOCK);
  round_trip();
  EXPECT_EQ(agent->held(), 5u);
  agent->holds_requests = false;
  agent->answer_held();
  for (ofp_request* const each : {queried, stored, computed, dropped, listed})
    ASSERT_EQ(ofp_request_wait(each, second_ns, &error), OFP_OK) << said();

  ofp_listing* listing = nullptr;
  ASSERT_EQ(ofp_request_listing(listed, &listing, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_listing_count(listing), 8u) << "in several answers";
  ofp_listing_free(listing);
  std::uint64_t number = 0;
  ASSERT_EQ(ofp_request_dropped(dropped, &number, &error), OFP_OK) << said();
  EXPECT_EQ(number, 8u);
  ofp_frame* frame = nullptr;
  ASSERT_EQ(ofp_request_frame(computed, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_frame_bytes(frame), 5000u);
  ofp_frame_release(frame);
  ASSERT_EQ(ofp_request_frame(stored, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(frame, nullptr) << "it was put into the pool";

  EXPECT_EQ(std::string(reinterpret_cast<const char*>(agent->query.data()), agent->query.size()), "a query")
      << "the program's own bytes may go";
  ofp_query* answer = nullptr;
  ASSERT_EQ(ofp_request_query(queried, &answer, &error), OFP_OK) << said();
  ofp_query* again = nullptr;
  EXPECT_EQ(ofp_request_query(queried, &again, &error), OFP_CLOSED) << "it is given once";
  ofp_request *one = nullptr, *other = nullptr;
  ASSERT_EQ(ofp_query_next_start(answer, &one, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_query_next_start(answer, &other, &error), OFP_INVALID) << "one at a time";
  ASSERT_EQ(ofp_request_wait(keep(one), second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_frame(one, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_frame_bytes(frame), 5000u);
  ofp_frame_release(frame);
  ASSERT_EQ(ofp_query_next_start(answer, &one, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_wait(keep(one), second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_frame(one, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(frame, nullptr) << "that was all";
  EXPECT_EQ(ofp_query_next_start(answer, &one, &error), OFP_CLOSED);
  EXPECT_EQ(ofp_query_next(answer, &frame, &error), OFP_OK) << said();
  ofp_query_free(answer);
  round_trip();
  EXPECT_EQ(agent->released.size(), 2u) << "its two frames; the answer has ended";
}

TEST_F(RequestCalls, WhatIsCancelledIsGivenBack) {
  agent->query_frames = {"a"};
  agent->holds_requests = true;
  ofp_request* const late = query();
  for (ofp_request* const each : {list(), drop(), compute("a"), late}) ofp_request_free(each);
  round_trip();
  EXPECT_EQ(agent->cancelled.size(), 2u) << "the computation and the query";
  agent->holds_requests = false;
  agent->answer_held();
  settle();
  EXPECT_EQ(agent->released, (std::vector<std::uint64_t>{1, FakeAgent::answer_number})) << "the frame, and the answer";

  // The next frame of an answer, which ends with it.
  ofp_request* const asked = keep(query());
  ofp_query* answer = nullptr;
  ASSERT_EQ(ofp_request_wait(asked, second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_query(asked, &answer, &error), OFP_OK) << said();
  agent->holds_requests = true;
  ofp_request* next = nullptr;
  ASSERT_EQ(ofp_query_next_start(answer, &next, &error), OFP_OK) << said();
  ofp_request_free(next);
  EXPECT_EQ(ofp_query_next_start(answer, &next, &error), OFP_CLOSED);
  ofp_query_free(answer);
  round_trip();
  agent->answer_held();
  settle();
  EXPECT_EQ(agent->released, (std::vector<std::uint64_t>{1, FakeAgent::answer_number, FakeAgent::answer_number, 2}));
}

TEST_F(RequestCalls, CallbacksAreCalledOnceByWhoeverLooks) {
  struct Calls {
    std::vector<ofp_request*> ended;
    static void note(void* user, ofp_request* request) { static_cast<Calls*>(user)->ended.push_back(request); }
    static void free(void* user, ofp_request* request) {
      note(user, request);
      ofp_request_free(request);
    }
  } calls;
  agent->holds_requests = true;
  ofp_request *const wanted = keep(want("a")), *const listed = list(), *const unwanted = want("a");
  ASSERT_EQ(ofp_request_on_end(wanted, Calls::note, &calls, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_on_end(listed, Calls::free, &calls, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_request_on_end(unwanted, Calls::note, &calls, &error), OFP_OK) << said();
  ofp_request_free(unwanted);
  EXPECT_EQ(ofp_poll(channel, &error), OFP_OK) << said();
  EXPECT_TRUE(calls.ended.empty());
  agent->holds_requests = false;
  agent->answer_held();
  round_trip();
  EXPECT_TRUE(calls.ended.empty()) << "a probe does not look for requests";
  EXPECT_EQ(ofp_poll(channel, &error), OFP_OK) << said();
  EXPECT_EQ(calls.ended, (std::vector<ofp_request*>{wanted, listed}));
  ofp_request* next = nullptr;
  EXPECT_EQ(ofp_request_next(channel, second_ns, &next, &error), OFP_NOT_FOUND) << "who has a callback is not told of";
  EXPECT_EQ(calls.ended.size(), 2u);
  // A request that has ended already, and one that frees itself during a wait.
  ASSERT_EQ(ofp_request_on_end(wanted, Calls::note, &calls, &error), OFP_OK);
  EXPECT_EQ(calls.ended.size(), 3u);
  ofp_request* const other = drop();
  ASSERT_EQ(ofp_request_on_end(other, Calls::free, &calls, &error), OFP_OK);
  EXPECT_EQ(ofp_request_wait(other, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(calls.ended.back(), other);
}

TEST_F(RequestCalls, AFullRingDelaysThemAndKeepsTheirOrder) {
  const std::string pattern(1000, 'a');
  std::vector<ofp_request*> listed(layout.request_slots / 16);  // time, and with it the agent, stands still meanwhile
  for (ofp_request*& each : listed) {
    ASSERT_EQ(ofp_pool_list_start(channel, "local:/p", pattern.c_str(), nullptr, OFP_FOREVER, &each, &error), OFP_OK)
        << said();
    keep(each);
  }
  EXPECT_EQ(ofp_pool_drop(channel, "local:/p", pattern.c_str(), nullptr, 0, nullptr, &error), OFP_WOULD_BLOCK)
      << "the ring is full: " << said();
  ofp_request_free(want("a"));  // it was never posted
  ASSERT_EQ(ofp_request_wait(listed.back(), second_ns, &error), OFP_OK) << said();
  for (ofp_request* const each : listed) EXPECT_EQ(ofp_request_wait(each, 0, &error), OFP_OK) << said();
  EXPECT_TRUE(agent->cancelled.empty());
}

// Answers that find no room keep the agent from requests, the sleeping program's for a wake among them.
TEST_F(RequestCalls, MoreAnswersThanTheirRingHoldsWakeWhoeverSleeps) {
  std::vector<ofp_request*> listed(2 * layout.reply_slots);
  for (ofp_request*& each : listed) each = keep(list(OFP_FOREVER));
  ASSERT_EQ(ofp_request_wait(listed.back(), 100 * second_ns, &error), OFP_OK) << said();
  for (ofp_request* const each : listed) EXPECT_EQ(ofp_request_wait(each, 0, &error), OFP_OK) << said();
}

TEST_F(RequestCalls, ClosingTheChannelEndsThem) {
  agent->holds_requests = true;
  auto* const other = new ofp_channel{channel->connection};
  std::vector<ofp_request*> all{keep(want("a")), keep(list(OFP_FOREVER)), keep(compute("a")), keep(query())};
  std::vector<int> codes;
  ASSERT_EQ(ofp_request_on_end(
                all[1],
                [](void* user, ofp_request* request) {
                  static_cast<std::vector<int>*>(user)->push_back(ofp_request_wait(request, 0, nullptr));
                },
                &codes, &error),
            OFP_OK);
  ofp_close(other);
  EXPECT_EQ(codes, std::vector<int>{OFP_CLOSED});
  for (ofp_request* const each : all) EXPECT_EQ(ofp_request_wait(each, OFP_FOREVER, &error), OFP_CLOSED) << said();
  ofp_request* request = nullptr;
  EXPECT_EQ(ofp_pool_list_start(channel, "local:/p", nullptr, nullptr, 0, &request, &error), OFP_CLOSED);
  EXPECT_EQ(request, nullptr);
}

TEST_F(RequestCalls, MisuseIsAnError) {
  ofp_request* request = nullptr;
  ofp_frame* frame = nullptr;
  ofp_listing* listing = nullptr;
  ofp_query* answer = nullptr;
  std::uint64_t dropped = 0;
  EXPECT_EQ(ofp_pool_want(nullptr, "local:/p", "", "", 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_want(channel, "local:/p", "", "", 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_list_start(nullptr, "local:/p", nullptr, nullptr, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_list_start(channel, nullptr, nullptr, nullptr, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_list_start(channel, "local:/p", nullptr, nullptr, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_drop_start(nullptr, "local:/p", nullptr, nullptr, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_drop_start(channel, "local:/p", nullptr, nullptr, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_compute_start(channel, "local:/p", "r", "c", "p", "f", nullptr, 7, nullptr, nullptr, 0, &request,
                                   &error),
            OFP_INVALID);
  EXPECT_EQ(said(), "arguments is NULL");
  EXPECT_EQ(ofp_pool_query_start(channel, "local:/p", nullptr, nullptr, nullptr, 7, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_pool_query_start(channel, "local:/p", nullptr, nullptr, "q", 0, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_query_next_start(nullptr, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_wait(nullptr, 0, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_next(nullptr, 0, &request, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_frame(nullptr, &frame, &error), OFP_INVALID);
  EXPECT_EQ(said(), "request is NULL");
  EXPECT_EQ(request, nullptr);
  ofp_request* const listed = keep(list());
  EXPECT_EQ(ofp_request_on_end(listed, nullptr, nullptr, &error), OFP_INVALID);
  ASSERT_EQ(ofp_request_wait(listed, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_request_frame(listed, &frame, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_dropped(listed, &dropped, &error), OFP_INVALID);
  EXPECT_EQ(said(), "the request is not a drop");
  EXPECT_EQ(ofp_request_query(listed, &answer, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_listing(listed, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_request_listing(keep(drop()), &listing, &error), OFP_WOULD_BLOCK);
  ofp_request_free(nullptr);
}

TEST_F(HostCalls, TheDirectoryIsListedPageByPage) {
  for (const char* name : {"a", "b", "c", "d", "e"})
    agent->resources.emplace_back(std::string("/pools/") + name, std::string("replicas=") + name);
  agent->resources.emplace_back("/sift/tracks", "");
  ofp_resources* found = nullptr;
  ASSERT_EQ(ofp_resources_list(channel, "other", "/pools/", 0, second_ns, &found, &error), OFP_OK) << said();
  EXPECT_EQ(agent->directory_asked, std::vector<std::string>(3, "other:/pools/"));
  ASSERT_EQ(ofp_resources_count(found), 5u);
  EXPECT_EQ(ofp_resources_version(found), 1u);
  ofp_resource resource{};
  ASSERT_EQ(ofp_resources_entry(found, 4, &resource), OFP_OK);
  EXPECT_STREQ(resource.path, "/pools/e");
  EXPECT_STREQ(resource.about, "replicas=e");
  EXPECT_STREQ(resource.member, "here");
  EXPECT_EQ(ofp_resources_entry(found, 5, &resource), OFP_INVALID);
  ofp_resources_free(found);
  // Nothing has changed since: the list is empty and has the version that was seen.
  const TimeNs before = fabric->now();
  ASSERT_EQ(ofp_resources_list(channel, nullptr, nullptr, 1, 3 * millisecond_ns, &found, &error), OFP_OK) << said();
  EXPECT_GE(fabric->now() - before, 3 * millisecond_ns);
  EXPECT_EQ(agent->directory_asked.back(), ":");
  EXPECT_EQ(ofp_resources_count(found), 0u);
  EXPECT_EQ(ofp_resources_version(found), 1u);
  ofp_resources_free(found);
  agent->directory_version = 2;
  ASSERT_EQ(ofp_resources_list(channel, nullptr, nullptr, 1, second_ns, &found, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_resources_count(found), 6u);
  EXPECT_EQ(ofp_resources_version(found), 2u);
  ofp_resources_free(found);
  EXPECT_EQ(ofp_resources_list(channel, nullptr, nullptr, 0, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "resources is NULL");
}

class RemoteRequests : public RequestCalls {
 protected:
  static link::LoopbackOptions remote() {
    link::LoopbackOptions options;
    options.mapped = false;
    return options;
  }
  RemoteRequests() : RequestCalls(remote()) {}
};

TEST_F(RemoteRequests, FramesArePushedWhileNobodyWaits) {
  agent->holds_requests = true;
  ofp_request *const wanted = keep(want("a")), *const unwanted = want("a");
  round_trip();
  agent->answer_held();  // how long it is
  round_trip();
  EXPECT_EQ(ofp_request_wait(wanted, 0, &error), OFP_WOULD_BLOCK) << "it is to be pushed";
  round_trip();
  EXPECT_EQ(agent->held(), 2u);
  ofp_request_free(unwanted);
  agent->answer_held();
  ASSERT_EQ(ofp_request_wait(wanted, second_ns, &error), OFP_OK) << said();
  ofp_frame* frame = nullptr;
  ASSERT_EQ(ofp_request_frame(wanted, &frame, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_frame_bytes(frame), 5000u);
  EXPECT_EQ(std::memcmp(ofp_frame_data(frame), agent->objects["a"].bytes.data(), 5000), 0);
  ofp_frame_release(frame);
  // A request that is abandoned before its bytes are fetched: its lease is released.
  agent->holds_requests = true;
  ofp_request_free(want("a"));
  agent->holds_requests = false;
  agent->answer_held();
  settle();
  EXPECT_EQ(agent->released, std::vector<std::uint64_t>{3}) << "the lease of pushed bytes has ended";
  EXPECT_TRUE(agent->cancelled.size() == 1);
}

}  // namespace
}  // namespace offpath::host
