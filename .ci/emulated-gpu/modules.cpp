// Modules of the CUDA driver, and NVRTC, which makes them: shared libraries of the processor.
#include "gpu.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

using std::string;

namespace {

struct Function {
    void* (*bind)(void**);
    int (*run)(void*, const unsigned*, unsigned, bool);
    void (*free)(void*);
};

struct Program {
    string source, library, log;
};

string text_of(const string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

string folder_of_library() {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&text_of), &info);
    string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

}  // namespace

// ---- Modules --------------------------------------------------------------------------------------------------------

EXPORT int cuModuleLoadData(void** module, const void* image) {
    if (int error = refusal_of_waiting()) return error;
    // Each module has variables of its own, so it is a file of its own.
    char own[] = "/tmp/emulated-gpu-XXXXXX";
    int file = mkstemp(own);
    if (file < 0) return INVALID_IMAGE;
    close(file);
    std::ofstream(own, std::ios::binary) << text_of(static_cast<const char*>(image));
    *module = dlopen(own, RTLD_NOW | RTLD_LOCAL);
    if (!*module) fprintf(stderr, "emulated GPU: %s\n", dlerror());
    unlink(own);
    return *module ? OK : INVALID_IMAGE;
}

// Functions of it may be in recordings.
EXPORT int cuModuleUnload(void*) { return OK; }

EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
    void* bind = dlsym(module, (string("emulated_bind_") + name).c_str());
    if (!bind) return NOT_FOUND;
    *function = new Function{
        reinterpret_cast<void* (*)(void**)>(bind),
        reinterpret_cast<int (*)(void*, const unsigned*, unsigned, bool)>(dlsym(module, "emulated_run")),
        reinterpret_cast<void (*)(void*)>(dlsym(module, "emulated_free")),
    };
    return lost;
}

static int launch(void* raw, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                  unsigned threads_z, void* stream, void** arguments, bool at_once) {
    if (int error = refusal()) return error;
    bool is_possible = x && y && z && y < 65536 && z < 65536 && threads && threads <= 1024;
    if (!is_possible || threads_y != 1 || threads_z != 1) return INVALID_VALUE;
    Function* function = static_cast<Function*>(raw);
    std::shared_ptr<void> launch(function->bind(arguments), function->free);
    double all_threads = double(x) * y * z * threads;
    return enqueue(stream, 0.003 + all_threads / 1e8, [=] {
        unsigned blocks[3] = {x, y, z};
        if (function->run(launch.get(), blocks, threads, at_once)) lost = ILLEGAL_INSTRUCTION;
    });
}

EXPORT int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                          unsigned threads_z, unsigned, void* stream, void** arguments, void**) {
    return launch(function, x, y, z, threads, threads_y, threads_z, stream, arguments, false);
}

// A block for each multiprocessor has room anywhere.
EXPORT int cuLaunchCooperativeKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                                     unsigned threads_y, unsigned threads_z, unsigned, void* stream, void** arguments) {
    if (x * y * z > MULTIPROCESSORS) return TOO_LARGE_AT_ONCE;
    return launch(function, x, y, z, threads, threads_y, threads_z, stream, arguments, true);
}

// ---- NVRTC ----------------------------------------------------------------------------------------------------------

EXPORT int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char**, const char**) {
    *program = new Program{source, "", ""};
    return 0;
}

EXPORT int nvrtcDestroyProgram(void** program) {
    delete static_cast<Program*>(*program);
    return 0;
}

EXPORT const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }

// What was compiled before is taken from beside this library.
EXPORT int nvrtcCompileProgram(void* raw, int, const char**) {
    const int FAILED = 6;
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    Program* program = static_cast<Program*>(raw);
    string all = program->source + text_of(SOURCES "/kernels.h") + text_of(SOURCES "/compile");
    string cache = folder_of_library() + "/cache", name = cache + "/" + std::to_string(std::hash<string>()(all));
    program->library = name + ".so";
    if (access(program->library.c_str(), R_OK) == 0) return 0;
    mkdir(cache.c_str(), 0755);
    string own = name + "." + std::to_string(getpid());
    std::ofstream(own + ".cu") << program->source;
    string command = "'" SOURCES "/compile' '" + own + ".cu' '" + own + ".so' 2>'" + own + ".log'";
    bool is_done = system(command.c_str()) == 0 && rename((own + ".so").c_str(), program->library.c_str()) == 0;
    program->log = text_of(own + ".log");
    unlink((own + ".cu").c_str());
    unlink((own + ".log").c_str());
    return is_done ? 0 : FAILED;
}

// In the place of PTX stands the path of the compiled library.
EXPORT int nvrtcGetPTXSize(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->library.size() + 1;
    return 0;
}

EXPORT int nvrtcGetPTX(void* program, char* text) {
    strcpy(text, static_cast<Program*>(program)->library.c_str());
    return 0;
}

EXPORT int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->log.size() + 1;
    return 0;
}

EXPORT int nvrtcGetProgramLog(void* program, char* text) {
    strcpy(text, static_cast<Program*>(program)->log.c_str());
    return 0;
}
