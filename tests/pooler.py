"""What may stand between a client and PostgreSQL: a transaction pooler, and a network that fails at the worst moment.

Both understand no more of the protocol than where messages begin and end, and when a transaction is over.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import struct
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections import defaultdict
from typing import Literal, NamedTuple, Self
from urllib.parse import SplitResult, unquote, urlsplit

STARTUP = 196608
SSL_REQUEST, ENCRYPTION_REQUEST = 80877103, 80877104
NO = b"N"
FIRST_PROCESS_ID = 100_000_000
"""Above what a system gives to its processes."""


class Message(NamedTuple):
    """One message of the protocol."""

    kind: bytes
    body: bytes

    def encoded(self) -> bytes:
        return self.kind + struct.pack(">I", len(self.body) + 4) + self.body


READY = Message(b"Z", b"I").encoded()


async def read_message(reader: StreamReader) -> Message:
    header = await reader.readexactly(5)
    return Message(header[:1], await reader.readexactly(struct.unpack(">I", header[1:])[0] - 4))


async def read_startup(reader: StreamReader, writer: StreamWriter) -> dict[str, str]:
    """Take a client's first message: without encryption, whatever it would like better."""
    while True:
        body = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0] - 4)
        code = struct.unpack(">I", body[:4])[0]
        if code not in (SSL_REQUEST, ENCRYPTION_REQUEST):
            break
        writer.write(NO)
    words = [word.decode() for word in body[4:].split(b"\0")]
    return dict(zip(words[::2], words[1::2], strict=False)) if code == STARTUP else {}


def startup(**settings: str) -> bytes:
    words = [word for pair in settings.items() for word in pair]
    body = struct.pack(">I", STARTUP) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


class ServerSession:
    """A connection to the server, logged in."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.settings: list[Message] = []
        self.process_id = 0

    @classmethod
    async def open(cls, address: SplitResult) -> Self:
        """Log in with the password of the address, by SCRAM-SHA-256 where the server asks for it."""
        user, password = unquote(address.username or "postgres"), unquote(address.password or "")
        session = cls(*await asyncio.open_connection(address.hostname, address.port))
        session.writer.write(startup(user=user, database=address.path.removeprefix("/")))
        nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        first = f"n=,r={nonce}"
        while (message := await read_message(session.reader)).kind != b"Z":
            code = struct.unpack(">I", message.body[:4])[0] if message.kind == b"R" else None
            if code == 10:
                answer = f"n,,{first}".encode()
                session._say(b"SCRAM-SHA-256\0" + struct.pack(">I", len(answer)) + answer)
            elif code == 11:
                session._say(scram_proof(first, message.body[4:].decode(), password).encode())
            elif message.kind == b"S":
                session.settings.append(message)
            elif message.kind == b"K":
                session.process_id = struct.unpack(">I", message.body[:4])[0]
            elif message.kind == b"E":
                raise ConnectionError(message.body)
        return session

    def _say(self, body: bytes) -> None:
        self.writer.write(Message(b"p", body).encoded())


def scram_proof(first: str, challenge: str, password: str) -> str:
    """Prove to know a password, after RFC 5802."""
    asked = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(asked["s"]), int(asked["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    last = f"c=biws,r={asked['r']}"
    signed = hmac.digest(hashlib.sha256(key).digest(), f"{first},{challenge},{last}".encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signed, strict=True))
    return f"{last},p={base64.b64encode(proof).decode()}"


class Proxy(ABC):
    """Listens on a port of its own for as long as its block lasts."""

    def __init__(self, dsn: str) -> None:
        self._address = urlsplit(dsn)

    async def __aenter__(self) -> Self:
        self._sessions: set[asyncio.Task[None]] = set()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        login = self._address.netloc.rpartition("@")[0]
        self.dsn = self._address._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        session = asyncio.current_task()
        assert session is not None
        self._sessions.add(session)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._sessions.discard(session)

    @abstractmethod
    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one client until it leaves."""


class TransactionPooler(Proxy):
    """Lends each transaction of a client whatever server connection is free, as PgBouncer does in its
    transaction mode."""

    ALLOWED = {"user", "database", "client_encoding", "DateStyle", "TimeZone", "application_name", "replication"}

    def __init__(self, dsn: str, *, servers: int) -> None:
        super().__init__(dsn)
        self._number = servers
        self.served_by: defaultdict[int, set[int]] = defaultdict(set)
        """Which processes of the server have worked for each client."""

    async def __aenter__(self) -> Self:
        self._free: asyncio.Queue[ServerSession] = asyncio.Queue()
        self._all = [await ServerSession.open(self._address) for _ in range(self._number)]
        for server in self._all:
            self._free.put_nowait(server)
        return await super().__aenter__()

    async def __aexit__(self, *details: object) -> None:
        await super().__aexit__(*details)
        for server in self._all:
            server.writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        settings = await read_startup(reader, writer)
        for name in settings.keys() - self.ALLOWED - {""}:
            fields = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {name}\0\0"
            writer.write(Message(b"E", fields.encode()).encoded())
            return
        client = FIRST_PROCESS_ID + len(self.served_by)
        self.served_by[client] = set()
        key = Message(b"K", struct.pack(">II", client, secrets.randbits(31)))
        for message in (Message(b"R", bytes(4)), *self._all[0].settings, key):
            writer.write(message.encoded())
        writer.write(READY)
        await _Session(self, client, reader, writer).run()

    async def take(self) -> ServerSession:
        return await self._free.get()

    def give_back(self, server: ServerSession) -> None:
        self._free.put_nowait(server)

    async def replace(self, server: ServerSession) -> None:
        """Throw away a connection that a client left in the middle of something."""
        server.writer.close()
        self._all.remove(server)
        fresh = await ServerSession.open(self._address)
        self._all.append(fresh)
        self.give_back(fresh)


class _Session:
    """One client of a pooler."""

    def __init__(self, pooler: TransactionPooler, client: int, reader: StreamReader, writer: StreamWriter) -> None:
        self._pooler, self._client = pooler, client
        self._reader, self._writer = reader, writer
        self._server: ServerSession | None = None
        self._asked = 0
        """How often the server has still to say that it is ready."""
        self._answering: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            while (message := await read_message(self._reader)).kind != b"X":
                if self._server is None:
                    self._server = await self._pooler.take()
                    self._pooler.served_by[self._client].add(self._server.process_id)
                    self._answering = asyncio.create_task(self._answer(self._server))
                self._asked += message.kind in (b"Q", b"S", b"F")
                self._server.writer.write(message.encoded())
        finally:
            if self._answering is not None:
                self._answering.cancel()
            if self._server is not None:
                await self._pooler.replace(self._server)

    async def _answer(self, server: ServerSession) -> None:
        """Pass on what the server says until the transaction is over, then let go of it."""
        over = False
        while not over:
            message = await read_message(server.reader)
            self._asked -= message.kind == b"Z"
            over = message.encoded() == READY and self._asked == 0
            if over:
                self._server = None
                self._pooler.give_back(server)
            self._writer.write(message.encoded())


class CommitCutter(Proxy):
    """Passes everything on, but when armed cuts the connection at the next COMMIT: before the server has
    heard of it, or after it has committed and before the client is told."""

    armed: Literal["before", "after"] | None = None
    cuts = 0

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        settings = await read_startup(reader, writer)
        server_reader, server_writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        server_writer.write(startup(**{name: value for name, value in settings.items() if name}))
        passing = asyncio.create_task(self._pass_on(server_reader, writer))
        try:
            while True:
                message = await read_message(reader)
                if message.kind == b"Q" and message.body.startswith(b"COMMIT") and self.armed is not None:
                    moment, self.armed = self.armed, None
                    self.cuts += 1
                    if moment == "after":
                        passing.cancel()
                        await asyncio.gather(passing, return_exceptions=True)
                        server_writer.write(message.encoded())
                        while (await read_message(server_reader)).kind != b"Z":
                            pass
                    return
                server_writer.write(message.encoded())
        finally:
            passing.cancel()
            server_writer.close()

    async def _pass_on(self, reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()
