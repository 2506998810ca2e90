# One image for all commands: `serve` by default; `work`, `db upgrade` and the others by name.

FROM python:3.13-slim AS build
WORKDIR /source
RUN python -m venv /opt/outrider
# What changes seldom comes first: a change of the code then installs nothing but itself anew.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > requirements.txt \
    && /opt/outrider/bin/pip install --no-cache-dir --only-binary :all: --constraint constraints.txt --requirement requirements.txt
COPY outrider ./outrider
RUN /opt/outrider/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin outrider \
    && install --directory --owner outrider --mode 0750 /data
COPY --from=build /opt/outrider /opt/outrider
ENV PATH=/opt/outrider/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OUTRIDER_DATA=/data
USER outrider
WORKDIR /data
VOLUME /data
EXPOSE 7071
# Asks without a key, which /readyz does not need; of use to `serve` only.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7071/readyz', timeout=4)"]
ENTRYPOINT ["outrider"]
CMD ["serve", "--host", "0.0.0.0"]
