import sys,json,struct
for line in sys.stdin:
    d=json.dumps({"id":json.loads(line)["id"],"nodes":[],"whole":True}).encode()
    sys.stdout.buffer.write(struct.pack(">I",len(d))+d); sys.stdout.buffer.flush()
