// Contexts, streams, events and recordings of the CUDA driver.
//
// A stream does its work when it is asked to. Where the variable EMULATED_GPU_ORDER has a number, it does not: a thread of
// the device does the work of all streams, one piece after the other, as late and in such an order as is drawn from that
// number among all that events allow. So work that does not wait for what it needs finds something else, as it may on a GPU.
#include "gpu.h"
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

int lost = 0;
thread_local int context = 0;

namespace {

// A point in a stream's work, and when the stream came by.
struct Mark {
    bool is_reached = false;
    double ms = -1;
};

using MarkRef = std::shared_ptr<Mark>;

// What a stream has to do: to wait for a mark, to work, to reach a mark.
struct Task {
    MarkRef needs;
    std::function<void()> work;
    double ms;
    MarkRef reaches;

    bool may_begin() const { return !needs || needs->is_reached; }
};

struct Stream;

// Work that was recorded and not done.
struct Recording {
    std::deque<std::pair<Stream*, Task>> tasks;
    bool is_open = true;
    bool is_broken = false;
};

// Its clock says what the work would take on a GPU, by a model that is the same every time: choices of algorithms do not
// depend on the machine.
struct Stream {
    struct Device* device;
    std::shared_ptr<Recording> recording = nullptr;
    std::deque<Task> queue = {};
    bool is_working = false, is_late = false;
    size_t added = 0, done = 0;
    double clock_ms = 0;

    bool is_recording() const { return recording && recording->is_open; }
    bool is_ready() const { return !is_working && queue.front().may_begin(); }

    // A task is done.
    void pass(const Task& task) {
        if (task.needs) clock_ms = std::max(clock_ms, task.needs->ms);
        clock_ms += task.ms;
        if (task.reaches) *task.reaches = Mark{true, clock_ms};
    }
};

struct Event {
    struct Device* device = nullptr;
    MarkRef mark;
    std::shared_ptr<Recording> recording;

    bool is_recorded_only() const { return recording && recording->is_open; }
};

const char* const ORDER = getenv("EMULATED_GPU_ORDER");

thread_local int recordings_here = 0;

struct Device {
    std::mutex lock;
    std::condition_variable changed;
    // Those that come first are preferred.
    std::vector<Stream*> streams;
    size_t waiting = 0;
    std::mt19937 drawn{unsigned(ORDER ? atoi(ORDER) : 0)};

    void add(Stream* stream, Task task) {
        std::unique_lock<std::mutex> guard(lock);
        stream->queue.push_back(std::move(task));
        stream->added++;
        if (!ORDER) {
            changed.wait(guard, [=] { return stream->is_ready(); });
            take(guard, stream);
        }
        changed.notify_all();
    }

    std::vector<Stream*> all() {
        std::lock_guard<std::mutex> guard(lock);
        return streams;
    }

    // Waits for all that these streams have to do by now.
    void wait_for(std::vector<Stream*> streams) {
        std::vector<size_t> added;
        for (Stream* stream : streams) added.push_back(stream->added);
        wait([=] {
            for (size_t i = 0; i < added.size(); i++) {
                if (streams[i]->done < added[i]) return false;
            }
            return true;
        });
    }

    template <class Done>
    void wait(Done is_done) {
        std::unique_lock<std::mutex> guard(lock);
        waiting++;
        changed.notify_all();
        changed.wait(guard, is_done);
        waiting--;
    }

    // Does the next task of a stream.
    void take(std::unique_lock<std::mutex>& guard, Stream* stream) {
        Task task = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->is_working = true;
        guard.unlock();
        if (task.work && !lost) task.work();
        guard.lock();
        stream->is_working = false;
        stream->done++;
        stream->pass(task);
        changed.notify_all();
    }

    // A thread's life: takes what there is.
    void run() {
        std::unique_lock<std::mutex> guard(lock);
        for (size_t left = 0;; left--) {
            if (left == 0) {
                std::shuffle(streams.begin(), streams.end(), drawn);
                for (Stream* stream : streams) stream->is_late = drawn() & 1;
                left = span();
            }
            Stream* next = ready(waiting > 0);
            while (!next) {
                // Sooner or later all is done, whether or not somebody waits for it.
                bool is_idle = changed.wait_for(guard, std::chrono::milliseconds(5)) == std::cv_status::timeout;
                next = ready(is_idle || waiting > 0);
            }
            take(guard, next);
        }
    }

    // For how many tasks an order stays: for few or for many.
    size_t span() { return size_t(1) << drawn() % 11; }

    Stream* ready(bool late_too) {
        for (Stream* stream : streams) {
            if (!stream->queue.empty() && stream->is_ready() && (late_too || !stream->is_late)) return stream;
        }
        return nullptr;
    }

    // Does recorded work as part of `stream`'s: in the order in which it was recorded, or in any that it allows.
    void replay(Recording& recording, Stream* stream) {
        std::vector<std::deque<const Task*>> queues;
        std::vector<Stream*> of;
        for (auto& [in, task] : recording.tasks) {
            if (task.reaches) task.reaches->is_reached = false;
            size_t place = ORDER ? std::find(of.begin(), of.end(), in) - of.begin() : 0;
            if (place == queues.size()) queues.emplace_back(), of.push_back(in);
            queues[place].push_back(&task);
        }
        for (size_t all = recording.tasks.size(), left = 0; all > 0 && !lost; all--, left--) {
            if (ORDER && left == 0) {
                std::shuffle(queues.begin(), queues.end(), drawn);
                left = span();
            }
            auto next = std::find_if(queues.begin(), queues.end(), [](auto& queue) {
                return !queue.empty() && queue.front()->may_begin();
            });
            if (next->front()->work) next->front()->work();
            stream->pass(*next->front());
            next->pop_front();
        }
    }
};

// Devices are kept to the end, as their threads go on until then.
Device& this_device() {
    const int MOST = 3;
    static Device* devices = [] {
        Device* devices = new Device[MOST];
        for (int i = 0; ORDER && i < MOST; i++) std::thread([=] { devices[i].run(); }).detach();
        return devices;
    }();
    return devices[context];
}

// Adds to what is recorded in the stream, or else to what it does.
void add(Stream* stream, Task task) {
    if (stream->is_recording()) {
        stream->recording->tasks.emplace_back(stream, std::move(task));
    } else if (!lost) {
        stream->device->add(stream, std::move(task));
    }
}

}  // namespace

int refusal() { return lost ? lost : context ? OK : INVALID_CONTEXT; }

int refusal_of_waiting() { return lost ? lost : recordings_here > 0 ? NOT_WHILE_RECORDING : OK; }

int enqueue(void* stream, double ms, std::function<void()> work) {
    add(static_cast<Stream*>(stream), Task{nullptr, std::move(work), ms, nullptr});
    return lost;
}

void wait_for_all() {
    this_device().wait_for(this_device().all());
}

// ---- Contexts -------------------------------------------------------------------------------------------------------

EXPORT int cuCtxSetCurrent(void* current) {
    context = int(uintptr_t(current));
    return lost;
}

EXPORT int cuCtxGetCurrent(void** current) {
    *current = reinterpret_cast<void*>(uintptr_t(context));
    return OK;
}

EXPORT int cuCtxSynchronize() {
    if (int error = refusal_of_waiting()) return error;
    wait_for_all();
    return lost;
}

// ---- Streams --------------------------------------------------------------------------------------------------------

EXPORT int cuStreamCreate(void** made, unsigned) {
    if (int error = refusal()) return error;
    Device& device = this_device();
    std::lock_guard<std::mutex> guard(device.lock);
    Stream* stream = new Stream{&device};
    device.streams.push_back(stream);
    *made = stream;
    return OK;
}

// Events and recordings may still look at it: streams are few, and are kept.
EXPORT int cuStreamDestroy_v2(void*) { return OK; }

EXPORT int cuStreamSynchronize(void* raw) {
    Stream* stream = static_cast<Stream*>(raw);
    if (stream->is_recording()) {
        stream->recording->is_broken = true;
        return NOT_WHILE_RECORDING;
    }
    if (int error = refusal_of_waiting()) return error;
    stream->device->wait_for({stream});
    return lost;
}

EXPORT int cuStreamWaitEvent(void* raw, void* raw_event, unsigned) {
    Stream* stream = static_cast<Stream*>(raw);
    Event* event = static_cast<Event*>(raw_event);
    if (event->is_recorded_only()) {
        stream->recording = event->recording;
    } else if (event->recording) {
        return CAPTURED_EVENT;
    } else if (stream->is_recording()) {
        stream->recording->is_broken = true;
        return ISOLATED_RECORDING;
    }
    if (event->mark) add(stream, Task{event->mark, nullptr, 0, nullptr});
    return lost;
}

// ---- Recordings -----------------------------------------------------------------------------------------------------

EXPORT int cuStreamBeginCapture_v2(void* raw, int) {
    Stream* stream = static_cast<Stream*>(raw);
    if (stream->is_recording()) return INVALID_VALUE;
    stream->recording = std::make_shared<Recording>();
    recordings_here++;
    return lost;
}

EXPORT int cuStreamEndCapture(void* raw, void** graph) {
    Stream* stream = static_cast<Stream*>(raw);
    *graph = nullptr;
    if (!stream->recording) return INVALID_VALUE;
    // Streams that joined it leave it, too.
    auto recording = std::move(stream->recording);
    recording->is_open = false;
    recordings_here--;
    if (lost) return lost;
    if (recording->is_broken) return RECORDING_IS_BROKEN;
    *graph = new std::shared_ptr<Recording>(recording);
    return OK;
}

EXPORT int cuStreamIsCapturing(void* raw, int* status) {
    Stream* stream = static_cast<Stream*>(raw);
    // None, active, or broken.
    *status = !stream->is_recording() ? 0 : stream->recording->is_broken ? 2 : 1;
    return lost;
}

EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
    *executable = new std::shared_ptr<Recording>(*static_cast<std::shared_ptr<Recording>*>(graph));
    return lost;
}

EXPORT int cuGraphLaunch(void* executable, void* raw) {
    auto recording = *static_cast<std::shared_ptr<Recording>*>(executable);
    Stream* stream = static_cast<Stream*>(raw);
    return enqueue(stream, 0.005, [=] { stream->device->replay(*recording, stream); });
}

EXPORT int cuGraphDestroy(void* graph) {
    delete static_cast<std::shared_ptr<Recording>*>(graph);
    return OK;
}

EXPORT int cuGraphExecDestroy(void* executable) { return cuGraphDestroy(executable); }

// ---- Events ---------------------------------------------------------------------------------------------------------

EXPORT int cuEventCreate(void** event, unsigned) {
    if (int error = refusal()) return error;
    *event = new Event;
    return OK;
}

// As for streams.
EXPORT int cuEventDestroy_v2(void*) { return OK; }

EXPORT int cuEventRecord(void* raw, void* raw_stream) {
    Event* event = static_cast<Event*>(raw);
    Stream* stream = static_cast<Stream*>(raw_stream);
    *event = Event{stream->device, std::make_shared<Mark>(), stream->is_recording() ? stream->recording : nullptr};
    add(stream, Task{nullptr, nullptr, 0, event->mark});
    return lost;
}

EXPORT int cuEventSynchronize(void* raw) {
    Event* event = static_cast<Event*>(raw);
    if (lost) return lost;
    if (event->recording) return CAPTURED_EVENT;
    if (event->mark) event->device->wait([=] { return event->mark->is_reached || lost; });
    return lost;
}

EXPORT int cuEventElapsedTime_v2(float* ms, void* raw_from, void* raw_to) {
    Event *from = static_cast<Event*>(raw_from), *to = static_cast<Event*>(raw_to);
    if (!from->mark || !to->mark) return INVALID_HANDLE;
    std::lock_guard<std::mutex> guard(from->device->lock);
    if (!from->mark->is_reached || !to->mark->is_reached) return NOT_READY;
    *ms = to->mark->ms - from->mark->ms;
    return lost;
}
